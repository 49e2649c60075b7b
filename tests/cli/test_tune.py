"""moonfed tune: chooses by held-out training rows alone, continues where it stopped, prints the next command."""

import json
import shlex
import signal
from dataclasses import replace

import pytest
from commands import QUICK, Attempt, moonfed, rows

from moonfed.data import DATASETS
from moonfed.data.catalog.digits import digits
from moonfed.experiments.search import Results, choose, plan_search

SHORT = [*QUICK, "--rounds", "2"]


def choice_of(answer):
    assert answer.code == 0, answer.err
    return answer.value


def test_the_test_labels_have_no_part_in_the_choice(place, monkeypatch):
    arguments = ["tune", "--mu", "0.1,1,50", "--lr", "0.01,0.3", *SHORT, "--seeds", "0-1", "--budget", "9", "--json"]
    one = choice_of(moonfed(*arguments, "--out", "one"))
    whole = digits()
    wrong = replace(whole, test_labels=(whole.test_labels + 1) % 10, test_inputs=255 - whole.test_inputs)
    monkeypatch.setitem(DATASETS, "digits", lambda: wrong)
    other = choice_of(moonfed(*arguments, "--out", "other"))
    assert {k: v for k, v in one.items() if k != "folder"} == {k: v for k, v in other.items() if k != "folder"}
    assert one["trials"] <= 9


def test_another_split_of_the_training_rows_does_change_what_is_measured(place):
    arguments = ["tune", "--mu", "0.1,1", *SHORT, "--seeds", "0", "--json"]
    one, other = (choice_of(moonfed(*arguments, "--validation", share)) for share in ("0.2", "0.4"))
    assert one["settings"] != other["settings"]


def test_the_result_is_what_is_written_and_the_next_command_runs(place):
    answer = moonfed("tune", "--mu", "0.1,1", "--projection", "8,16", *SHORT, "--seeds", "0-1", "--budget", "8")
    assert answer.code == 0, answer.err
    (written,) = place.glob("runs/tune-*/tune.json")
    found = json.loads(written.read_text())
    assert found["conclusion"] in " ".join(answer.out.split())
    assert (found["grid"], found["tried"], found["trials"]) == (4, 4, 8)
    words = shlex.split(found["command"])
    assert words[:2] == ["moonfed", "run"]
    assert "--validation" not in words
    assert words[words.index("--mu") + 1] == str(found["chosen"]["mu"])
    assert words[words.index("--projection") + 1] == str(found["chosen"]["projection"])
    next_answer = moonfed(*words[1:])
    assert next_answer.code == 0, next_answer.err
    assert "on the test set" in next_answer.out


def test_the_next_command_names_a_setting_that_shares_its_name_with_the_split_by_its_algorithm(place):
    arguments = ["tune", "--algorithm", "fedntd", "--fedntd.beta", "0.1,1", "--beta", "0.6", *SHORT]
    found = choice_of(moonfed(*arguments, "--seeds", "0", "--budget", "2", "--json"))
    words = shlex.split(found["command"])
    assert words[words.index("--fedntd.beta") + 1] == str(found["chosen"]["beta"])
    assert words[words.index("--beta") + 1] == "0.6"
    assert moonfed(*words[1:]).code == 0


def test_a_grid_of_two_settings_of_one_name_says_whose_they_are(place):
    grid = ["--algorithm", "fedntd", "--fedntd.beta", "0.1,1", "--beta", "0.3,0.5"]
    assert moonfed("sweep", *grid, *SHORT, "--seeds", "0", "--out", "grid").code == 0
    names = {folder.name for folder in (place / "grid").iterdir() if folder.is_dir()}
    assert names == {f"algorithm.beta={a}_data.beta={b}" for a in ("0.1", "1") for b in ("0.3", "0.5")}


def test_the_same_command_reads_what_was_run_and_a_larger_budget_adds_to_it(place):
    arguments = ["tune", "--mu", "0.1,1,5", *SHORT, "--seeds", "0-1", "--json"]
    first = choice_of(moonfed(*arguments, "--budget", "6"))
    stamps = {path: path.stat().st_mtime_ns for path in place.rglob("rounds.jsonl")}
    again = moonfed(*arguments, "--budget", "6")
    assert choice_of(again) == first
    assert "round 1/" not in again.err
    assert {path: path.stat().st_mtime_ns for path in place.rglob("rounds.jsonl")} == stamps
    choice_of(moonfed(*arguments[:-2], "0-2", "--json", "--budget", "9"))
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    assert len(list(place.rglob("rounds.jsonl"))) == 9


def test_without_a_list_the_published_candidates_are_searched_but_for_what_is_fixed(place):
    found = choice_of(moonfed("tune", "--algorithm", "fedprox", *SHORT, "--seeds", "0", "--budget", "4", "--json"))
    assert [item["setting"] for item in found["settings"]] == ["mu=0.001", "mu=0.01", "mu=0.1", "mu=1"]
    fixed = ["--temperature", "0.5", "--projection", "8"]
    found = choice_of(moonfed("tune", *fixed, *SHORT, "--seeds", "0", "--budget", "4", "--json"))
    assert [item["setting"] for item in found["settings"]] == ["mu=0.1", "mu=1", "mu=5", "mu=10"]


@pytest.mark.parametrize("order", ["0.1,1,5", "5,1,0.1"])
@pytest.mark.parametrize("seeds", ["0", "0-2"])
def test_at_a_tie_table_verdict_and_next_command_name_the_same_setting(place, order, seeds):
    """MOON's first round is FedAvg's, whatever mu is: after one round all settings tie."""
    answer = moonfed("tune", "--mu", order, *QUICK, "--rounds", "1", "--seeds", seeds)
    assert answer.code == 0, answer.err
    first, second, third = order.split(",")
    table = [line.split()[0] for line in answer.out.splitlines() if line.startswith(" mu=")]
    assert table == [f"mu={first}", f"mu={second}", f"mu={third}"]
    assert f"mu={first} and mu={second} tie exactly, with " in answer.out
    assert f"next: moonfed run --mu {first} " in answer.out


def test_scores_in_another_order_tie_too():
    """The sum of floats depends on their order; a mean that is exact does not."""
    plan = plan_search(2, [0, 1, 2], budget=6)
    scores: Results = {0: {0: 0.1, 1: 0.2, 2: 0.3}, 1: {0: 0.3, 1: 0.2, 2: 0.1}}
    for results in (scores, {0: scores[1], 1: scores[0]}):
        choice = choose(plan, results)
        assert choice is not None
        assert choice.best == 0


def test_runs_says_which_accuracies_are_on_held_out_rows(place):
    assert moonfed("tune", "--mu", "0.1,1", *SHORT, "--seeds", "0").code == 0
    assert moonfed("run", *SHORT, "--out", "runs/plain").code == 0
    listed = moonfed("runs")
    held = [line.split()[-2] for line in listed.out.splitlines() if line.startswith(" runs/")]
    assert held == ["test", "held-out", "held-out"]
    assert "on held-out rows: a choice between settings, on test rows: a result" in " ".join(listed.out.split())
    assert [run["accuracy_on"] for run in moonfed("runs", "--json").value] == held
    assert "held-out" not in moonfed("runs", "runs/plain").out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--algorithm", "fedavg"], "tune has no default grid for fedavg"),
        (["--budget", "0"], "--budget needs a number of trials"),
        (["--budget", "3"], "a budget of 3 trials is too small"),
        (["--beta", "0.1,0.5"], "--beta takes one value in a tune"),
        (["--model", "cnn,mlp"], "--model takes one value in a tune"),
        (["--validation", "0"], "tune needs held-out rows"),
        (["--validation", "1.5"], "data.validation needs a value < 1"),
        (["--mu", "1,x"], "moon.mu needs a number"),
        (["--mu", "1,1"], "needs each value once"),
        (["--mu", "1,1.0"], "two of these settings are the same (for example 1 and 1.0); give each value once"),
        (["--mu", "1"], "tune has nothing to choose: mu has one value, 1; give several, for example --mu 0.1,1,5,10"),
        (["--algorithm", "fedprox", "--mu", "1"], "mu has one value, 1; give several, for example --mu 0.001,0.01,0.1"),
        (["--seeds", "a"], "--seeds needs whole numbers"),
    ],
)
def test_bad_input_is_one_line(place, arguments, words):
    answer = moonfed("tune", *arguments)
    assert answer.code == 2
    assert words in answer.err
    assert len(answer.err.splitlines()) == 1


def test_every_setting_that_fails_ends_the_search_with_a_word(place):
    answer = moonfed("tune", "--lr", "1e30,1e31", *SHORT, "--seeds", "0")
    assert answer.code == 1
    assert "every setting ended in numbers that are not finite" in answer.err


def test_a_stopped_search_continues_to_the_result_it_would_have_had(place):
    arguments = ["tune", "--mu", "0.1,1", *QUICK, "--rounds", "6", "--seeds", "0-1", "--budget", "4"]
    assert moonfed(*arguments, "--out", "whole").code == 0
    stopped = Attempt(*arguments, "--out", "parts")
    stopped.await_word("round 2/6")
    stopped.send(signal.SIGINT)
    answer = stopped.end()
    assert answer.code == 1
    assert answer.err.splitlines()[-1] == "moonfed: stopped early, saved in parts; run the same command to continue"
    assert "Traceback" not in answer.err
    assert not (place / "parts" / "tune.json").exists()
    assert 2 <= len(rows(place / "parts" / "mu=0.1" / "seed-0")) < 6
    assert moonfed(*arguments, "--out", "parts").code == 0
    one, other = (json.loads((place / name / "tune.json").read_text()) for name in ("whole", "parts"))
    assert one | {"folder": ""} == other | {"folder": ""}
