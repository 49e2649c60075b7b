"""moonfed reproduce stopped, resumed, refused and on damaged folders."""

import signal

import pytest
from commands import Attempt, bits, moonfed, refuse, refused

from moonfed.papers.recipe_result import result_of
from moonfed.papers.recipe_trials import ReproductionOptions, run_recipes
from moonfed.papers.recipes import RECIPES
from moonfed.training.callbacks import Callback, FunctionCallback


def until(rounds: int) -> list[Callback]:
    """Stop after a round, as Ctrl-C does."""
    return [FunctionCallback(lambda record: record["round"] >= rounds)]


def test_stopped_and_resumed_is_never_stopped(tmp_path):
    recipes = [RECIPES[id].only("cifar10") for id in ("table12", "table8")]
    whole, halved = (ReproductionOptions(tmp_path / name, "smoke", (0,)) for name in ("whole", "halved"))
    assert run_recipes(recipes, whole, until(9))
    assert not run_recipes(recipes, halved, until(1))
    assert {line["state"] for line in result_of(recipes[0], halved)["lines"]} == {"not run"}
    assert {item["verdict"] for item in result_of(recipes[0], halved)["differences"]} == {"smoke: not run"}
    assert run_recipes(recipes, halved, until(9))
    assert bits(halved.out) == bits(whole.out)


def test_several_splits_are_trials_of_their_own(place):
    answer = moonfed(
        "reproduce", "xu-table2", "--scale", "smoke", "--seeds", "0", "--splits", "0,1", "--out", place, "--json"
    )
    (found,) = answer.value
    assert [(t["split"], t["seed"]) for t in found["lines"][0]["trials"]] == [(0, 0), (1, 0)]
    assert found["differences"][0]["measured"]["n"] == 2
    assert (place / "xu-table2-splits-0-1-seeds-0" / "table.md").exists()


def test_ctrl_c_ends_in_one_line_and_the_same_command_continues(place):
    words = ("reproduce", "table8", "--scale", "smoke", "--seeds", "0", "--out", place)
    attempt = Attempt(*words)
    attempt.await_word("round 1/2")
    attempt.send(signal.SIGINT)
    answer = attempt.end()
    assert answer.code in (0, 1), answer.err  # 0 if the last round was over before the signal came
    assert "Traceback" not in answer.err
    assert moonfed(*words).code == 0


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["tabel1"], 'no recipe "tabel1"; did you mean table1? known: '),
        ([], "reproduce needs an id, for example table1, or all; moonfed reproduce --list shows every id"),
        (["table1", "--dataset", "cifar"], 'no data set "cifar" in the recipes; did you mean cifar10? known: '),
        (["table8", "--dataset", "cifar100"], "table8 does not use cifar100; it uses cifar10"),
        (["table1", "--scale", "big"], 'no scale "big"; '),
        (["table1", "--scale", "smoke", "--splits", "x"], "--splits needs whole numbers"),
        (["table1", "--scale", "smoke", "--seeds", ""], "--seeds needs whole numbers"),
        (["table1", "--scale", "smoke", "--device", "gpu"], "run.device needs another form"),
        (["--list", "--device", "gpu"], "run.device needs another form"),
    ],
)
def test_invalid_input_is_rejected_in_one_line(place, words, line):
    assert line in refuse(place, "reproduce", *words)


def test_data_that_is_not_here_is_named_with_the_command_that_gets_it(place, monkeypatch):
    monkeypatch.setenv("MOONFED_DATA", str(place / "empty"))
    said = refuse(place, "reproduce", "table1", "--dataset", "cifar10")
    assert "table1 needs cifar10, which is not on this machine; get it with: moonfed data get cifar10" in said


def test_results_of_another_scale_are_not_overwritten(place):
    (place / "table8").mkdir()
    (place / "table8" / "result.json").write_text('{"scale": "full"}')
    assert "holds results of scale full, now smoke" in refuse(
        place, "reproduce", "table8", "--scale", "smoke", "--out", place
    )


def test_a_folder_that_cannot_be_written_is_reported_in_one_line(place):
    (place / "file").write_text("")
    said = refused(moonfed("reproduce", "table6", "--scale", "smoke", "--out", place / "file"))
    assert "cannot write" in said


QUICK = ["reproduce", "xu-table2", "--scale", "smoke", "--seeds", "0"]


def test_what_another_command_made_is_never_written_over(place):
    assert moonfed(*QUICK, "--out", place).code == 0
    first = (place / "xu-table2-seeds-0" / "result.json").read_bytes()
    assert moonfed("reproduce", "xu-table2", "--scale", "smoke", "--seeds", "1", "--out", place).code == 0
    assert moonfed(*QUICK, "--dataset", "cifar10", "--out", place).code == 0
    assert (place / "xu-table2-seeds-0" / "result.json").read_bytes() == first
    assert (place / "xu-table2-seeds-1" / "result.json").exists()
    assert (place / "xu-table2-cifar10-seeds-0" / "result.json").exists()


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        ("rounds.jsonl", b"", "is damaged: it holds 0 of"),
        ("config.json", b"{}", "is damaged"),
        ("config.json", b"{", ""),
    ],
)
def test_a_damaged_trial_is_named_in_one_line(place, name, content, word):
    assert moonfed(*QUICK, "--out", place).code == 0
    trial = next((place / "trials").iterdir())
    (trial / name).write_bytes(content)
    done = moonfed(*QUICK, "--out", place)
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert word in done.err
    assert name in done.err


def test_a_damaged_result_is_made_again(place):
    assert moonfed(*QUICK, "--out", place).code == 0
    path = place / "xu-table2-seeds-0" / "result.json"
    good = path.read_bytes()
    path.write_bytes(b"{")
    assert moonfed(*QUICK, "--out", place).code == 0
    assert path.read_bytes() == good
