"""Refusals that name what to do in the words of the command that was given."""

from pathlib import Path

import pytest
from commands import QUICK, contents, moonfed, refuse

COMPARE = '[compare]\nmethods = ["moon"]\n'
FEDERATION = "[federation]\ndeadline = 3\n"


@pytest.mark.parametrize(
    ("words", "text", "says"),
    [
        (["run"], COMPARE, "the table [compare] is read by moonfed compare only; use that, or omit the table"),
        (["federate"], COMPARE, "the table [compare] is read by moonfed compare only"),
        (["partition"], COMPARE, "the table [compare] is read by moonfed compare only"),
        (["run"], FEDERATION, "the table [federation] is read by moonfed federate (or federation start) only"),
        (["compare", "moon"], FEDERATION, "the table [federation] is read by moonfed federate (or federation start)"),
        (["compare"], '[[compare]]\nmethods = ["moon"]\n', "compare is a list in it.toml; write [compare] once"),
        (["run"], "lr = [0.1, 0.2]\n", "lr stands outside a section; sections are data, model"),
    ],
)
def test_a_table_of_a_config_file_that_a_command_does_not_read_is_refused_with_advice(words, text, says, place):
    Path("it.toml").write_text(text)
    assert says in refuse(place, *words, "--config", "it.toml")


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ("moon:mu=x", "moon.mu needs a number, got 'x'; write it as moon:mu=VALUE\n"),
        ("moon:mu=-1", "moon.mu needs a value >= 0, got -1.0; write it as moon:mu=VALUE\n"),
        ("moon:negatives=1.5", "moon.negatives needs a whole number, got '1.5'; write it as moon:negatives=VALUE\n"),
        (
            "moon+fedavgm:server_momentum=7",
            "fedavgm.server_momentum needs a value < 1, got 7.0; write it as moon+fedavgm:server_momentum=VALUE\n",
        ),
        ("moon:nu=1", 'no setting "nu" of moon; did you mean mu?'),
    ],
)
def test_a_bad_setting_of_a_method_is_refused_in_the_spelling_of_methods(method, says, place):
    line = refuse(place, "compare", method, "fedavg", *QUICK)
    assert says in line
    assert "--mu" not in line


def test_no_run_goes_into_the_folder_of_another(place):
    few = [*QUICK, "--rounds", "1"]
    assert moonfed("run", *few, "--out", "mine").code == 0
    before = contents(place)
    for words in (
        ["compare", "moon", "fedavg", "--seeds", "0", "--out", "mine"],
        ["sweep", "--mu", "1,2", "--seeds", "0", "--out", "mine"],
        ["tune", "--mu", "1,2", "--seeds", "0,1", "--out", "mine"],
        ["run", "--out", "mine/below"],
        ["run", "--out", place / "mine" / "far" / "below"],
    ):
        answer = moonfed(*words, *few)
        line = answer.err.splitlines()[-1]
        assert answer.code == 2
        assert "mine holds a run, so " in line
        assert "use --out for another folder" in line
    assert contents(place) == before


def test_a_run_that_lies_in_another_from_before_is_resumed(place):
    few = [*QUICK, "--algorithm", "fedavg"]
    assert moonfed("run", *few, "--rounds", "1", "--out", "inner").code == 0
    assert moonfed("run", *few, "--rounds", "1", "--seed", "1", "--out", "outer").code == 0
    Path("inner").rename("outer/inner")
    assert moonfed("run", *few, "--rounds", "2", "--resume", "--out", "outer/inner").code == 0


def test_a_damaged_checkpoint_is_refused_with_advice_and_one_round_is_singular(place):
    few = [*QUICK, "--algorithm", "fedavg"]
    for name in ("a", "b"):
        assert moonfed("run", *few, "--rounds", "1", "--out", name).code == 0
    Path("a/checkpoint/manifest.json").write_text("{")
    line = refuse(place, "run", *few, "--rounds", "2", "--resume", "--out", "a")
    assert "a/checkpoint/manifest.json cannot be read: " in line
    assert line.endswith("; the run cannot be resumed, use --out for another folder\n")
    Path("b/rounds.jsonl").write_text("{}\n")
    line = refuse(place, "run", *few, "--rounds", "2", "--resume", "--out", "b")
    assert "it does not hold the 1 round of its checkpoint as written; use --out for another folder" in line


@pytest.mark.parametrize("command", ["run", "sweep", "tune", "federate"])
def test_the_name_of_an_algorithm_that_stands_alone_gets_its_flag_as_a_suggestion(command, place):
    meant = f"Did you mean '--algorithm moon'? See moonfed {command} --help"
    assert refuse(place, command, "moon") == f"moonfed: Got unexpected extra argument (moon). {meant}\n"


@pytest.mark.parametrize("words", [["run", "zzzz"], ["partition", "moon"], ["run", "moon", "fedavg"]])
def test_other_extra_words_get_no_suggestion(words, place):
    line = refuse(place, *words)
    assert "Got unexpected extra argument" in line
    assert "Did you mean" not in line
