"""Early stopping keeps the best model by the loss on rows set aside, and survives what a run survives."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import CRASHED, SMALL, Attempt, bits, moonfed, refused, rows
from federations import weights
from user_rows import write_csv
from worlds import context_for, gap, ready, run, run_one, same_bits, settings, some_digits, trained

from moonfed import fit
from moonfed.core.errors import UserError
from moonfed.core.seeds import generator
from moonfed.federation.protocol.eligibility import check_federable
from moonfed.storage.checkpoint import Manifest, lowest_common
from moonfed.storage.run_record import read_run
from moonfed.training.accuracy import accuracy, final_accuracy
from moonfed.training.config import make_config
from moonfed.training.early_stopping import best_round
from moonfed.training.final_evaluation import final_evaluation
from moonfed.training.party_rows import split_rows
from moonfed.training.resolve import resolve
from moonfed.training.validation_rows import divide_rows

ROUNDS, PATIENCE = 12, 2
STOPPING: dict[str, Any] = {"train__rounds": ROUNDS, "train__patience": PATIENCE, "data__monitor": 0.25}
NOISE = ["--data", "noise.csv", "--label", "y", "--parties", "2", "--partition", "iid", "--monitor", "0.25"]
FAST = ["--epochs", "4", "--lr", "0.05", "--lr-schedule", "constant", "--batch", "16"]
FAST += ["--rounds", str(ROUNDS), "--patience", str(PATIENCE)]


def noisy_digits() -> Any:
    """Digits of which every second label is drawn at random: a network first learns, then learns them by heart."""
    data = some_digits()
    rng = generator(0, "tests", "noise")
    labels = data.labels.clone()
    labels[::2] = torch.from_numpy(rng.integers(0, 10, size=len(labels[::2])))
    return replace(data, labels=labels)


def write_noise(folder: Path) -> None:
    """A table of which a third of the labels are wrong."""
    rng = generator(0, "tests", "noise")
    x, wrong = rng.normal(size=(120, 6)), rng.random(120) < 0.33
    y = ((x[:, 0] > 0) ^ wrong).astype(int)
    write_csv(folder / "noise.csv", [*"abcdef", "y"], [[*a.round(4).tolist(), b] for a, b in zip(x, y, strict=True)])


def test_a_trial_ends_when_the_loss_has_not_improved_for_long_enough_and_keeps_the_best_model() -> None:
    config, data = settings("fedavg", **STOPPING), noisy_digits()
    (trial,), (found,) = trained(config, data=data)
    losses = [row["monitor_loss"] for row in found]
    best = losses.index(min(losses)) + 1
    assert len(found) == best + PATIENCE < ROUNDS, "it stops before its last round"
    assert [row["best_round"] for row in found] == [
        1 + losses[: k + 1].index(min(losses[: k + 1])) for k in range(len(losses))
    ]
    assert trial.stopped
    (until,), _ = trained(settings("fedavg", **STOPPING | {"train__rounds": best}), data=data)
    assert same_bits(trial.final_model, until.state.model)
    assert trial.evaluation is not None
    assert trial.evaluation["best_round"] == best
    assert trial.evaluation["accuracy"] == found[best - 1]["accuracy"]


def test_rounds_that_are_not_evaluated_do_not_count_as_waiting() -> None:
    config = settings("fedavg", **STOPPING | {"train__rounds": 40}, run__evaluate_every=3)
    _, (found,) = trained(config, data=noisy_digits())
    evaluated = [row["round"] for row in found if row.get("monitor_loss") is not None]
    best = found[-1]["best_round"]
    assert best % 3 == 0
    assert len([number for number in evaluated if number > best]) == PATIENCE


def test_rows_set_aside_have_no_part_in_training_and_are_no_test_rows() -> None:
    data, config = some_digits(), settings("fedavg", data__monitor=0.25)
    divided = divide_rows(split_rows(resolve(config, data), data), config.data, config.run.seed)
    aside = torch.cat([torch.from_numpy(part) for part in divided.monitor])
    assert len(aside) == pytest.approx(0.25 * len(data.labels), abs=4)
    changed = data.inputs.clone()
    changed[aside] = 0
    one, other = (trained(config, data=d) for d in (data, replace(data, inputs=changed)))
    assert gap(one[0][0].state, other[0][0].state) == 0
    assert one[1][0][-1]["accuracy"] == other[1][0][-1]["accuracy"]
    assert one[1][0][-1]["monitor_loss"] != other[1][0][-1]["monitor_loss"]


def test_watching_alone_records_the_loss_and_stops_nothing() -> None:
    (trial,), (found,) = trained(settings("moon", data__monitor=0.2, train__rounds=4), data=noisy_digits())
    assert len(found) == 4
    assert all(row["monitor_loss"] > 0 and "best_round" not in row for row in found)
    assert trial.final_model is trial.state.model


def test_rows_for_validation_and_rows_set_aside_are_different_ones() -> None:
    config, data = settings("fedavg", data__validation=0.2, data__monitor=0.2), some_digits()
    parts = split_rows(resolve(config, data), data)
    divided = divide_rows(parts, config.data, config.run.seed)
    for part, *pieces in zip(parts, *divided, strict=True):
        assert sorted(row for piece in pieces for row in piece) == sorted(part)
    assert min(len(piece) for piece in divided.validation) > 0


def test_trials_of_one_stack_end_at_rounds_of_their_own_and_as_they_would_alone() -> None:
    configs, data = [settings("fedavg", **STOPPING, run__seed=seed) for seed in range(4)], noisy_digits()
    context, trials = ready(configs, data=data)
    together, records = run(trials, context)
    assert len({len(found) for found in records}) > 1
    for config, trial in zip(configs, together, strict=True):
        assert same_bits(run_one(config, data=data).final_model, trial.final_model)


def test_the_accuracy_with_early_stopping_is_that_of_the_model_that_is_kept() -> None:
    found = [{"round": k, "accuracy": k / 10, "best_round": min(k, 4)} for k in range(1, 9)]
    assert accuracy(found) == final_accuracy(found) == 0.4
    plain = [{"round": k, "accuracy": k / 10} for k in range(1, 9)]
    assert accuracy(plain) == pytest.approx(0.75)


def test_a_folder_holds_the_best_model_and_says_that_it_stopped(place: Path) -> None:
    write_noise(place)
    said = moonfed("run", *NOISE, *FAST, "--out", "run")
    assert said.code == 0, said.err
    record = read_run(place / "run")
    best, done = best_round(record.rows) or 0, len(record.rows)
    assert done == best + PATIENCE < ROUNDS
    assert f"with the model of round {best} of {done}, the best on rows set aside; run\n" in said.out
    assert record.finished
    assert record.stopped
    until = [*NOISE, *FAST, "--rounds", str(best), "--out", "until"]
    assert moonfed("run", *until).code == 0
    assert weights(place / "run") == weights(place / "until")
    listed = {run["folder"]: run for run in moonfed("runs", ".", "--json").value}
    assert listed["run"]["state"] == "stopped early"
    assert listed["run"]["accuracy"] == listed["run"]["final_accuracy"] == record.rows[best - 1]["accuracy"]
    assert json.loads((place / "run" / "evaluation.json").read_text())["best_round"] == best
    before = bits(place / "run")
    again = moonfed("run", *NOISE, *FAST, "--out", "run", "--resume")
    assert again.code == 0
    assert "nothing left to do: the run stopped early" in again.err
    assert bits(place / "run") == before
    assert moonfed("report", "run", "-o", "page.html").code == 0


def test_a_comparison_whose_trials_stop_at_different_rounds_is_read_from_the_best_rounds(place: Path) -> None:
    write_noise(place)
    asked = ["compare", "moon", "fedavg", "--seeds", "0-2", *NOISE, *FAST, "--out", "all"]
    shown = moonfed(*asked)
    assert shown.code == 0, shown.err
    assert "the round with the lowest loss on rows set aside, whose model is kept" in shown.out
    found = moonfed(*asked, "--resume", "--json").value
    logs = [rows(place / "all" / "moon" / f"seed-{seed}") for seed in range(3)]
    assert len({len(log) for log in logs}) > 1
    kept = [log[log[-1]["best_round"] - 1]["accuracy"] for log in logs]
    assert [one["value"] for one in found[0]["accuracy"]["by_seed"]] == kept
    assert found[0]["difference"]["n"] == 3


def test_a_run_that_may_stop_early_is_not_continued_with_other_rounds_or_evaluations(place: Path) -> None:
    """Both decide which model is kept: an uninterrupted run with the new values might keep another."""
    write_noise(place)
    assert moonfed("run", *NOISE, *FAST, "--rounds", "2", "--out", "run").code == 0
    for other in (["--rounds", "4"], ["--rounds", "2", "--evaluate-every", "2"]):
        answer = moonfed("run", *NOISE, *FAST, *other, "--out", "run", "--resume")
        assert answer.code == 2
        assert "(--patience depends on which rounds are evaluated)" in answer.err


def test_a_crash_at_any_commit_of_trials_that_stop_early_costs_nothing(place: Path) -> None:
    write_noise(place)
    asked = ["compare", "fedavg", "--seeds", "0,1", *NOISE, *FAST, "--threads", "1", "--out"]
    assert moonfed(*asked, "undisturbed").code == 0
    expected = bits(place / "undisturbed")
    lengths = {len(log) for log in expected["rounds"].values()}
    assert len(lengths) == 2, "they stop at different rounds"
    crashes = 0
    for call in range(1, 1000, 5):
        code = Attempt(*asked, str(call), prepare=crash_at_replace, given=call).end().code
        if code == 0:
            break
        assert code == CRASHED
        crashes += 1
        answer = moonfed(*asked, str(call), "--resume")
        assert answer.code == 0, (call, answer)
        assert bits(place / str(call)) == expected, call
    assert crashes > 5


def crash_at_replace(call: int) -> None:
    from commands import crash_at

    crash_at((call, ("replace",)))


def test_a_trial_that_has_ended_does_not_send_the_others_back() -> None:
    def at(*rounds: int) -> list[Manifest]:
        return [Manifest(number, 1, "", "", "", False) for number in rounds]

    def chosen(*committed: list[Manifest], ended: tuple[bool, ...], kept: tuple[bool, ...] = ()) -> list[int]:
        found = lowest_common(committed, ended, kept or (False,) * len(committed))
        return [0 if m is None else m.round for m in found]

    assert chosen(at(7, 6), at(9, 8), at(8, 7), ended=(True, False, False)) == [7, 8, 8]
    assert chosen(at(7, 6), at(6, 5), ended=(True, False)) == [6, 6], "the last round was made together"
    assert chosen(at(7, 6), at(9, 8), ended=(True, True)) == [7, 9]
    assert chosen(at(3, 2), at(2, 1), ended=(False, False)) == [2, 2]
    assert chosen(at(5), [], ended=(False, False)) == [0, 0], "killed between their first commits"
    assert chosen(at(5), [], ended=(False, True)) == [5, 0], "the other was added later, or failed"
    assert chosen(at(5), [], ended=(False, False), kept=(True, False)) == [5, 0], "its results are there"


def test_a_result_in_python_is_that_of_the_best_round() -> None:
    result = fit("mlp", noisy_digits(), "fedavg", parties=4, rounds=ROUNDS, patience=PATIENCE, epochs=2, batch=8,
                 lr=0.05, floor=8, monitor=0.25, progress=False)  # fmt: skip
    best = best_round(result.rows) or 0
    assert 0 < best < len(result.rows) < ROUNDS
    assert result.accuracy == result.final_accuracy == result.rows[best - 1]["accuracy"]


def test_what_does_not_fit_early_stopping_is_refused_in_one_line(place: Path) -> None:
    assert "--patience needs one global model, solo trains one per party" in refused(
        moonfed("run", *SMALL, "--patience", "3", "--algorithm", "solo")
    )
    assert "--monitor needs one global model, solo trains one per party" in refused(
        moonfed("run", *SMALL, "--monitor", "0.2", "--algorithm", "solo")
    )
    assert "--patience needs training rows set aside" in refused(
        moonfed("run", *SMALL, "--patience", "3", "--monitor", "0")
    )
    for given in ({"train": {"patience": 3}}, {"train": {"calibrate": True}}, {"data": {"monitor": 0.1}}):
        with pytest.raises(UserError, match="which a coordinator does not have; omit it in a federation"):
            check_federable(make_config(given))
    few = settings("fedavg", data__monitor=0.01)
    with pytest.raises(UserError, match=r"no party has enough rows to set 0\.01 of them aside"):
        trained(few)


def test_the_fraction_set_aside_follows_from_what_needs_it() -> None:
    assert make_config({}).data.monitor == 0
    assert make_config({"train": {"patience": 1}}).data.monitor == 0.1
    assert make_config({"train": {"calibrate": True}}).data.monitor == 0.1
    assert make_config({"train": {"patience": 1}, "data": {"monitor": 0.3}}).data.monitor == 0.3


def test_where_the_parties_are_other_machines_a_final_model_is_described_without_their_rows() -> None:
    data = replace(some_digits(), party=torch.arange(160) % 2, party_names=("a", "b"), test_party=torch.arange(60) % 2)
    config = settings("fedavg", data__partition="natural", data__parties=2, train__rounds=1)
    (trial,), _ = trained(config, data=data)
    elsewhere = replace(trial, spec=replace(trial.spec, parts=[]))
    context = context_for(config, "sequential", data)
    assert set(final_evaluation(trial, context)["by_party"]) == {"a", "b"}
    assert "by_party" not in final_evaluation(elsewhere, context)
