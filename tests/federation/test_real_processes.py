"""Federations of real processes over Flower compute what the simulation computes, whatever dies meanwhile."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import Attempt, bits, rows
from federations import SMALL, Federation, assert_nothing_runs, kill, processes, simulated, weights
from test_certificates import day, resigned

from moonfed.federation.flower.processes import ChildProcess, free_port, wait_for_port
from moonfed.federation.pki.coordinator_folder import CoordinatorFolder

TWO = ("--rounds", "2", "--epochs", "2")
LONG = ("--rounds", "3", "--epochs", "12")  # a second or more per round, long enough to be interrupted


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Federation]:
    """Three sites that may take part."""
    made = Federation(tmp_path)
    yield made
    made.end()


@pytest.mark.parametrize("algorithm", ["moon", "scaffold", "fedavg+ccvr"])
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


def test_personal_models_of_three_sites_are_those_of_the_simulation_and_stay_there(tmp_path: Path):
    words = (*TWO, "--algorithm", "fedper")
    answer = Attempt("federate", "--sites", "3", *SMALL, *words, "--out", tmp_path / "run").end(120)
    assert answer.code == 0, answer
    assert "on rows like each party's own after round 2" in answer.out
    expected = simulated(tmp_path / "here", 3, *words)
    for i in range(3):
        (memory,) = (tmp_path / "run" / "federation" / f"site-{i}" / "memory").iterdir()
        own = bits(memory)["tensors"]["personal.safetensors"]
        assert own == {k: expected[f"party{i}/{k}"] for k in own}
        assert "head.weight" in own
    assert not any(name.startswith("head.") for name in weights(tmp_path / "run"))
    one, other = (rows(tmp_path / name)[-1]["accuracy_by_party"] for name in ("run", "here"))
    assert one == other


def test_a_site_that_is_killed_and_restarted_changes_nothing(three: Federation, tmp_path: Path):
    words = (*LONG, "--algorithm", "scaffold")
    joined = {name: three.join(name) for name in three.names}
    coordinator = three.start(*words)
    coordinator.await_word("round 1/3", 90)
    kill(joined["site-1"])
    three.join("site-1")
    expected = simulated(tmp_path / "here", 3, *words)
    coordinator.await_word("round 3/3", 120)
    answer = coordinator.end(30)
    assert answer.code == 0, answer
    assert "two processes" not in answer.err
    assert [row["cohort"] for row in rows(tmp_path / "run")] == [[0, 1, 2]] * 3
    assert weights(tmp_path / "run") == expected


def test_a_coordinator_that_is_killed_resumes_with_the_same_sites(three: Federation, tmp_path: Path):
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


def test_ctrl_c_and_kill_end_all_processes(tmp_path: Path):
    words = ("federate", "--sites", "2", *SMALL, *LONG, "--out", tmp_path / "run")
    federated = Attempt(*words)
    federated.await_word("round 1/3", 90)
    federated.send(signal.SIGINT)
    answer = federated.end(60)
    assert answer.code == 1, answer
    assert "--resume" in answer.err
    assert_nothing_runs(tmp_path)
    again = Attempt(*words, "--resume")
    again.await_word("listening", 90)
    kill(again)
    assert_nothing_runs(tmp_path)


def test_a_superlink_that_dies_ends_the_run_with_one_line(tmp_path: Path):
    federated = Attempt("federate", "--sites", "1", *SMALL, *LONG, "--out", tmp_path / "run")
    federated.await_word("round 1/3", 90)
    (link,) = [pid for pid, words in processes(tmp_path) if "flower.node_process superlink" in words]
    os.kill(link, signal.SIGKILL)
    answer = federated.end(60)
    assert answer.code == 1, answer
    assert answer.err.splitlines()[-1].startswith("moonfed: SuperLink does not answer")
    assert_nothing_runs(tmp_path)


def test_nodes_without_a_key_of_the_allow_list_are_rejected_and_the_run_continues(tmp_path: Path):
    """A node without a key and one whose key is not on the list; the sites on the list run their rounds."""
    made = Federation(tmp_path, sites=3, admitted=2)
    words = (*LONG, "--algorithm", "fedavg")
    try:
        for name in made.names[:2]:
            made.join(name)
        coordinator = made.start(*words)
        coordinator.await_word("listening", 60)
        for key in ([], ["--auth-supernode-private-key", str(tmp_path / "site-2" / "site.key")]):
            code, said = knock(made, *key)
            assert code == 1, said
            assert "SuperNode ID" not in said  # which a node logs when it is accepted
        expected = simulated(tmp_path / "here", 2, *words)
        answer = coordinator.end(120)
        assert answer.code == 0, answer
        assert weights(tmp_path / "run") == expected
    finally:
        made.end()


def test_an_expired_certificate_starts_no_coordinator_and_is_trusted_by_no_site(tmp_path: Path):
    made = Federation(tmp_path, sites=1)
    files = CoordinatorFolder(made.home).server_files
    resigned(files, tmp_path, day(-30), day(-1)).certificate.replace(files.certificate)
    answer = made.start(*TWO).end(60)
    assert answer.code == 2
    assert "server.pem expired on" in answer.err
    ssl = ("--ssl-ca-certfile", files.authority, "--ssl-certfile", files.certificate, "--ssl-keyfile", files.key)
    words = ["superlink", str(os.getpid()), *map(str, ssl), "--enable-supernode-auth", "--host", "127.0.0.1"]
    words += ["--port", str(made.port), "--isolation", "process", "--disable-runtime-dependency-installation"]
    link = ChildProcess(
        ["-m", "moonfed.federation.flower.node_process", *words], tmp_path / "link.log", tmp_path / "flower"
    )
    try:
        wait_for_port("127.0.0.1", made.port, link, "SuperLink")
        code, said = knock(made, "--auth-supernode-private-key", str(tmp_path / "site-0" / "site.key"))
    finally:
        link.stop()
    assert code == 1, said
    assert "certificate has expired" in said
    made.end()


def knock(made: Federation, *words: str) -> tuple[int, str]:
    """Start a Flower node against a federation's address and wait for its end."""
    node = ["supernode", str(os.getpid()), "--superlink", f"127.0.0.1:{made.port}", "--isolation", "process"]
    node += ["--root-certificates", str(made.home / "ca.crt"), "--port", str(free_port()), *words]
    child = ChildProcess(
        ["-m", "moonfed.federation.flower.node_process", *node], made.folder / "knock.log", made.folder / "flower"
    )
    try:
        return child.process.wait(40), child.log.read_text()
    finally:
        child.stop()
