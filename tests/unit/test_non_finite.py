"""A loss that is not a number ends the run by party, round and step, and keeps the last good round."""

import re
from dataclasses import replace
from pathlib import Path

from commands import QUICK, SMALL, bits, moonfed, rows
from worlds import context_for, run, settings

from moonfed.training.resolve import resolve
from moonfed.training.trial import new_trial

# A weight decay of 250 at a rate of 0.01 multiplies every weight by -1.5 a step: the loss overflows in round 4.
RUNAWAY = [*QUICK, "--lr", "0.01", "--momentum", "0"]


def test_a_loss_that_is_not_finite_ends_the_run_by_party_round_and_step(place: Path) -> None:
    asked = ["run", *RUNAWAY, "--weight-decay", "250", "--out", "run"]
    failed = moonfed(*asked, "--rounds", "9")
    assert failed.code == 1
    assert failed.out == ""
    *progress, line = failed.err.splitlines()
    assert [word.split()[1] for word in progress] == ["1/9", "2/9", "3/9"]
    assert re.match(r"moonfed: the loss of party \d+ is not finite at step \d+ in round 4 \(supervised nan", line)
    assert "The last good state, of round 3, is in run" in line
    (listed,) = moonfed("runs", "--json", ".").value
    assert listed["state"].startswith("failed: the loss of party")
    assert listed["rounds"] == 3
    again = moonfed(*asked, "--rounds", "9", "--resume")
    assert again.code == 1
    assert again.err.splitlines()[-1] == line


def test_the_last_good_state_before_a_failure_is_that_of_a_run_that_ended_there(place: Path) -> None:
    asked = ["run", *RUNAWAY, "--weight-decay", "250", "--rounds"]
    assert moonfed(*asked, "9", "--out", "failed").code == 1
    assert moonfed(*asked, "3", "--out", "failed", "--resume").code == 0
    assert moonfed(*asked, "3", "--out", "undisturbed").code == 0
    assert bits(place / "failed") == bits(place / "undisturbed")
    assert [run["state"] for run in moonfed("runs", "--json", ".").value] == ["finished", "finished"]


def test_a_model_that_overflows_on_the_test_rows_alone_ends_the_run_too(place: Path) -> None:
    failed = moonfed("run", *RUNAWAY, "--weight-decay", "300", "--rounds", "9", "--out", "run")
    assert failed.code == 1
    assert "the model after round 2 is not finite" in failed.err.splitlines()[-1]
    assert len(rows(place / "run")) == 1


def test_a_method_that_fails_does_not_take_the_others_with_it(place: Path) -> None:
    failed = moonfed("compare", "fedprox:mu=1e30", "fedavg", "--seeds", "0", *SMALL, "--out", "all", "--json")
    assert failed.code == 1
    assert "is not finite" in failed.err.splitlines()[-1]
    bad, well = failed.value
    assert (bad["accuracy"]["mean"], bad["accuracy"]["std"], bad["seeds"], len(bad["failures"])) == (None, None, [], 1)
    assert (well["seeds"], well["failures"]) == ([0], [])
    assert len(rows(place / "all" / "fedavg" / "seed-0")) == 2


def test_where_fp16_ends_in_no_number_the_wider_precision_is_named() -> None:
    config = settings("fedavg", train__lr=1e30, train__rounds=2)
    for precision, said in (("fp16", True), ("fp32", False)):
        bench = context_for(config)
        trial = new_trial(resolve(config, bench.data), bench)
        run_settings = trial.config.run.model_copy(update={"precision": precision})
        config_ = trial.config.model_copy(update={"run": run_settings})
        ((trial,), _) = run([replace(trial, spec=replace(trial.spec, config=config_))], bench)
        assert trial.failure is not None
        assert trial.failure.endswith("--precision tf32 does not") == said
