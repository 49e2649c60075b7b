"""Federations of real processes over Flower: they compute what the simulation computes, whatever dies meanwhile."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import Attempt, rows
from federations import SMALL, Federation, assert_nothing_runs, kill, simulated, weights

TWO = ("--rounds", "2", "--epochs", "2")
LONG = ("--rounds", "3", "--epochs", "12")  # a second or more a round, so that there is a middle to die in


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Federation]:
    """Three sites that may take part."""
    made = Federation(tmp_path)
    yield made
    made.end()


@pytest.mark.parametrize("algorithm", ["moon", "scaffold"])
def test_three_sites_compute_what_the_sequential_engine_computes(tmp_path: Path, algorithm: str):
    words = (*TWO, "--algorithm", algorithm)
    federated = Attempt("federate", "--sites", "3", *SMALL, *words, "--out", tmp_path / "run", "--json")
    expected = simulated(tmp_path / "here", 3, *words)
    answer = federated.end(120)
    assert answer.code == 0, answer
    assert "round 2/2" in answer.err
    assert weights(tmp_path / "run") == expected
    assert [row["cohort"] for row in rows(tmp_path / "run")] == [[0, 1, 2]] * 2
    assert not (tmp_path / "run" / "refused.jsonl").exists()
    assert_nothing_runs(tmp_path)


def test_a_site_that_is_killed_and_comes_back_changes_nothing(three: Federation, tmp_path: Path):
    words = (*LONG, "--algorithm", "scaffold")
    joined = {name: three.join(name) for name in three.names}
    coordinator = three.start(*words)
    coordinator.await_word("round 1/3", 90)
    kill(joined["site-1"])
    three.join("site-1")
    expected = simulated(tmp_path / "here", 3, *words)
    coordinator.await_word("round 3/3", 120)
    assert coordinator.end(30).code == 0
    assert [row["cohort"] for row in rows(tmp_path / "run")] == [[0, 1, 2]] * 3
    assert weights(tmp_path / "run") == expected


def test_a_coordinator_that_is_killed_goes_on_with_the_same_sites(three: Federation, tmp_path: Path):
    words = (*LONG, "--algorithm", "moon")
    joined = [three.join(name) for name in three.names]
    first = three.start(*words)
    first.await_word("round 1/3", 90)
    kill(first)
    second = three.start(*words, "--resume")
    expected = simulated(tmp_path / "here", 3, *words)
    answer = second.end(120)
    assert answer.code == 0, answer
    assert "resumed after round" in answer.err
    assert all(site.process.is_alive() for site in joined)
    assert weights(tmp_path / "run") == expected


def test_ctrl_c_ends_everything_and_the_federation_can_be_gone_on_with(tmp_path: Path):
    words = ("federate", "--sites", "2", *SMALL, *LONG, "--out", tmp_path / "run")
    federated = Attempt(*words)
    federated.await_word("round 1/3", 90)
    federated.send(signal.SIGINT)
    answer = federated.end(60)
    assert answer.code == 1, answer
    assert "go on with --resume" in answer.err
    assert_nothing_runs(tmp_path)
    done = len(rows(tmp_path / "run"))
    again = Attempt(*words, "--resume")
    again.await_word("is here" if not done else "resumed after round", 90)
    kill(again)
    assert_nothing_runs(tmp_path)


def test_who_is_not_on_the_list_is_kept_out_and_the_round_goes_on(tmp_path: Path):
    """A site whose key is unknown, one that logs in under another key, and a node without any."""
    made = Federation(tmp_path, sites=4, admitted=3)
    try:
        sites = {name: made.join(name) for name in made.names}
        (tmp_path / "site-2" / "site.key").unlink()  # the third site lost its key and made itself a new one
        (tmp_path / "site-3" / "site.key").rename(tmp_path / "site-2" / "site.key")
        sites["site-2"].process.kill()
        coordinator = made.start(*TWO, "--algorithm", "fedavg", "--deadline", "12")
        impostor = made.join("site-2")
        answer = coordinator.end(90)
        assert answer.code == 1
        assert "site-2 did not enrol" in answer.err
        assert "connection lost" in impostor.said
    finally:
        made.end()


def test_refusals_are_logged_by_site():
    line = json.loads('{"refused": "a"}')
    assert line["refused"] == "a"
