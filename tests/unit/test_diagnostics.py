"""A run that has learned nothing says so in one line; one that has, does not."""

import logging
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from worlds import ready, run, settings

from moonfed import fit
from moonfed.experiments.execute import execute
from moonfed.training.early_stopping import Best
from moonfed.training.run_warnings import overfitting, warn_about
from moonfed.training.setup import set_up


@pytest.mark.parametrize("seed", range(3))
def test_a_run_that_learns_nothing_warns_and_one_that_learns_does_not(caplog, seed, tmp_path):
    caplog.set_level(logging.WARNING, "moonfed")
    execute(*set_up([settings("fedavg", train__lr=1e-6, train__rounds=1, run__seed=seed)]), [tmp_path / "nothing"])
    (line,) = caplog.messages
    assert "no better than guessing by class shares" in line
    assert f"fedavg, seed {seed}" in line
    caplog.clear()
    good = settings("fedavg", train__lr=0.05, train__rounds=4, train__epochs=5, run__seed=seed)
    execute(*set_up([good]), [tmp_path / "something"])
    assert not caplog.messages


@pytest.mark.parametrize("seed", range(3))
def test_a_model_that_predicts_one_class_only_is_said_to(caplog, seed):
    caplog.set_level(logging.WARNING, "moonfed")
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(400, 3)).astype("float32"), np.array(["usual"] * 396 + ["rare"] * 4)
    test = x[:100], np.array(["usual", "rare"] * 50)
    fit("mlp", (x, y), test=test, parties=2, partition="iid", rounds=3, epochs=3, lr=0.05, seeds=seed, progress=False)
    (line,) = caplog.messages
    assert "every row is predicted as class usual, whose share is 50.0%" in line


def noisy(seed: int) -> Any:
    """Rows of which a third of the labels are wrong: the longer one trains, the worse the probabilities become."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(300, 8)).astype("float32")
    return x, (x[:, 0] > 0) ^ (rng.random(300) < 0.33)


@pytest.mark.parametrize("seed", range(3))
def test_a_run_that_overfits_says_when_it_began_to_and_early_stopping_does_not(caplog, seed):
    caplog.set_level(logging.WARNING, "moonfed")
    asked: Any = {"parties": 2, "partition": "iid", "rounds": 8, "seeds": seed, "lr": 0.05, "progress": False}
    result = fit("mlp", noisy(seed), epochs=10, **asked)
    losses = [row["test_loss"] or 0.0 for row in result.rows]
    (line,) = caplog.messages
    low = min(losses)
    assert f"it overfits: the test loss was lowest in round {1 + losses.index(low)} ({low:.3g})" in line
    assert f"and rose to {losses[-1]:.3g}, while the training loss fell from " in line
    assert "worse than guessing by class shares" in line
    assert line.endswith("; use patience (for example 5), fewer epochs or more weight_decay")
    caplog.clear()
    fit("mlp", noisy(seed), epochs=1, patience=2, monitor=0.2, **asked | {"lr": 0.01})
    assert not [line for line in caplog.messages if "overfits" in line]


def test_a_test_loss_that_rises_by_less_than_a_tenth_or_with_the_training_loss_is_not_overfitting():
    def rounds(tests: list[float], trains: list[float]) -> Any:
        both = enumerate(zip(tests, trains, strict=True), start=1)
        return [{"round": k, "accuracy": 0.5, "test_loss": a, "losses": {"supervised": b}} for k, (a, b) in both]

    assert overfitting(rounds([0.5, 0.4, 0.45], [0.6, 0.5, 0.4])) is not None
    assert overfitting(rounds([0.5, 0.4, 0.43], [0.6, 0.5, 0.4])) is None
    assert overfitting(rounds([0.5, 0.4, 0.60], [0.6, 0.5, 0.6])) is None, "it diverges"
    assert overfitting(rounds([0.5, 0.4, 0.39], [0.6, 0.5, 0.4])) is None


def stopped_at(trains: list[float], best: int) -> tuple[Any, Any]:
    """A trial of 9 rounds that early stopping has ended after these training losses, and its records."""
    _, (trial,) = set_up([settings("fedavg", train__rounds=9, train__patience=2)])
    waited = len(trains) - best
    rounds = [
        {"round": k, "accuracy": 0.5, "test_loss": 0.1, "monitor_loss": 0.1, "best_round": best}
        | {"losses": {"supervised": loss}}
        for k, loss in enumerate(trains, start=1)
    ]
    return replace(trial, round=len(trains), best=Best(best, 0.1, trial.state.model, waited)), rounds


def test_a_run_that_early_stopping_ended_is_advised_a_larger_patience_and_not_to_train_longer(caplog):
    caplog.set_level(logging.WARNING, "moonfed")
    warn_about([stopped_at([9.0, 9.0, 9.0], best=1)])
    (line,) = caplog.messages
    assert "; use a larger patience or another lr (" in line
    assert "train longer" not in line


@pytest.mark.parametrize(("trains", "warned"), [([0.1, 9.0, 9.0], False), ([9.0, 0.1, 0.1], True)])
def test_whether_a_model_guesses_is_told_by_the_training_loss_of_the_kept_round(caplog, trains, warned):
    caplog.set_level(logging.WARNING, "moonfed")
    warn_about([stopped_at(trains, best=1)])
    said = "the training loss of the kept round, 1, was 9, no better than guessing"
    assert [said in line for line in caplog.messages] == [True] * warned


def test_a_test_loss_worse_than_guessing_is_not_answered_with_patience_where_patience_was_used(caplog):
    caplog.set_level(logging.WARNING, "moonfed")
    trial, rounds = stopped_at([0.1, 0.1, 0.1], best=1)
    warn_about([(trial, [row | {"test_loss": 50.0} for row in rounds])])
    (line,) = caplog.messages
    assert line.endswith("; calibrate")


def test_a_warning_names_the_hold_out_and_the_split_of_its_trial(caplog):
    caplog.set_level(logging.WARNING, "moonfed")
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 3)), np.arange(60) % 2
    asked: Any = {"parties": 2, "partition": "iid", "rounds": 1, "epochs": 1, "lr": 1e-6, "progress": False}
    fit("mlp", rows, seeds=1, holdout_seed=4, partition_seed=2, **asked)
    fit("mlp", rows, seeds=1, **asked)
    one, usual = caplog.messages
    assert one.startswith("moon, seed 1 on split 2, hold-out 4: ")
    assert usual.startswith("moon, seed 1: ")


def test_only_true_stops_a_run():
    heard: list[int] = []
    answers = iter([1, np.ones(2), "stop", None])

    def callback(record: Any) -> Any:
        heard.append(record["round"])
        return next(answers)

    fit("mlp", "digits", parties=4, rounds=4, epochs=1, callbacks=[callback], progress=False)
    assert heard == [1, 2, 3, 4]


def test_of_many_trials_with_problems_the_first_are_described(caplog: pytest.LogCaptureFixture):
    for count, lines in ((4, 4), (8, 4)):
        caplog.clear()
        warn_about([stopped_at([9.0, 9.0, 9.0], best=1)] * count)
        assert len(caplog.messages) == lines
    assert caplog.messages[-1] == "5 more trials have such problems; their records show them"


def test_a_run_whose_parties_were_all_dropped_says_so(caplog):
    config = settings("fedavg", cohort__stragglers=1.0, cohort__stragglers_keep=False, train__rounds=2)
    context, trials = ready(config)
    trials, (rows,) = run(trials, context)
    warn_about([(trials[0], rows)])
    assert "all parties of every round were dropped; use a smaller stragglers" in caplog.text
