"""The learning rate of each round: pure arithmetic, and part of what a run is where it depends on the rounds."""

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import QUICK, bits, moonfed, refuse, rows
from worlds import gap, ready, run_one, settings, trained

from moonfed.training.config import make_config
from moonfed.training.lr_schedule import round_lr
from moonfed.training.runner import make_jobs
from moonfed.training.settings import TrainSettings

FALLING = ["cosine", "linear"]


def rates(schedule: str, rounds: int, lr: float = 0.4) -> list[float]:
    train: Any = {"lr": lr, "rounds": rounds, "lr_schedule": schedule}
    return [round_lr(TrainSettings(**train), round) for round in range(rounds)]


def test_the_learning_rates_are_those_computed_by_hand():
    assert rates("constant", 3) == [0.4, 0.4, 0.4]
    assert rates("linear", 4) == pytest.approx([0.4, 0.3, 0.2, 0.1])
    half = math.sqrt(0.5)
    assert rates("cosine", 4) == pytest.approx([0.4, 0.2 * (1 + half), 0.2, 0.2 * (1 - half)])


def test_a_decay_multiplies_the_rate_of_every_schedule_round_by_round():
    for schedule in ("constant", *FALLING):
        plain = rates(schedule, 3)
        train: Any = {"lr": 0.4, "rounds": 3, "lr_schedule": schedule, "lr_decay": 0.5}
        found = [round_lr(TrainSettings(**train), round) for round in range(3)]
        assert found == pytest.approx([plain[0], plain[1] / 2, plain[2] / 4])


def test_a_decay_is_part_of_a_run_and_without_one_runs_keep_their_identity(tmp_path: Path):
    assert make_config({"train": {"lr_decay": 1.0}}).identity == make_config({}).identity
    assert make_config({"train": {"lr_decay": 0.998}}).identity != make_config({}).identity
    assert "train.lr_decay needs a value <= 1" in refuse(tmp_path, "run", "--lr-decay", "1.5")
    asked = ["run", *QUICK, "--lr-decay", "0.9", "--out", tmp_path / "run", "--resume", "--rounds"]
    assert [moonfed(*asked, rounds).code for rounds in ("1", "3")] == [0, 0], "it does not depend on their number"
    assert moonfed(*asked[:-1], "--out", tmp_path / "whole", "--rounds", "3").code == 0
    assert bits(tmp_path / "run") == bits(tmp_path / "whole")


@pytest.mark.parametrize("schedule", FALLING)
@pytest.mark.parametrize("rounds", [1, 2, 7, 100_000])
def test_a_falling_schedule_starts_at_lr_and_ends_above_zero(schedule: str, rounds: int):
    found = rates(schedule, rounds)
    assert found[0] == 0.4
    assert found[-1] > 0
    assert all(later < earlier for earlier, later in itertools.pairwise(found))


@pytest.mark.parametrize("schedule", ["constant", *FALLING])
def test_the_parties_of_a_round_train_with_the_rate_of_their_round(schedule: str):
    config = settings("fedavg", train__lr_schedule=schedule)
    context, (trial,) = ready(config)
    for round in range(config.train.rounds):
        jobs = make_jobs(replace(trial, round=round), context)
        assert {job.lr for job in jobs} == {round_lr(config.train, round)}


def test_scheduled_trials_share_a_stack_with_constant_ones_and_stay_themselves(float64: None):
    configs = [settings("moon", train__lr_schedule=schedule) for schedule in ("constant", *FALLING)]
    together, _ = trained(configs, "stacked")
    for config, trial in zip(configs, together, strict=True):
        assert gap(run_one(config).state, trial.state) < 1e-10
    assert gap(together[0].state, together[1].state) > 1e-4


def test_the_number_of_rounds_is_part_of_a_run_only_where_the_schedule_depends_on_it():
    def identity(schedule: str, rounds: int) -> str:
        return make_config({"train": {"lr_schedule": schedule, "rounds": rounds}}).identity

    assert identity("constant", 20) == identity("constant", 30) == make_config({}).identity
    for schedule in FALLING:
        assert identity(schedule, 20) != identity(schedule, 30)
    assert len({identity(schedule, 20) for schedule in ("constant", *FALLING)}) == 3


@pytest.mark.parametrize("schedule", FALLING)
@pytest.mark.parametrize("rounds", ["1", "4"])
def test_resuming_a_scheduled_run_with_other_rounds_is_refused_in_one_line(tmp_path: Path, schedule: str, rounds: str):
    asked = ["run", *QUICK, "--lr-schedule", schedule, "--out", tmp_path / "run", "--resume", "--rounds"]
    assert moonfed(*asked, "2").code == 0
    why = f"train.rounds was 2, now {rounds} (--lr-schedule {schedule} depends on the number of rounds)"
    assert why in refuse(tmp_path, *asked, rounds)
    assert moonfed(*asked, "2").code == 0
    assert len(rows(tmp_path / "run")) == 2


def test_an_unknown_schedule_is_refused_with_a_suggestion(tmp_path: Path):
    assert "did you mean cosine?" in refuse(tmp_path, "run", "--lr-schedule", "cosin")
