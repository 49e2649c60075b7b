"""Rows held out of training: which they are, and that nothing looks at the test set meanwhile."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from commands import SMALL, moonfed
from worlds import gap, run_one, settings, some_digits, trained

from moonfed.core.errors import UserError
from moonfed.training.party_rows import split_rows
from moonfed.training.resolve import resolve
from moonfed.training.validation_rows import hold_out

PARTS = [np.arange(0, 50), np.arange(50, 60), np.arange(60, 63)]


def test_each_party_gives_its_own_share_and_every_row_is_on_one_side():
    kept, held = hold_out(PARTS, 0.2, seed=0)
    assert [len(part) for part in held] == [10, 2, 1]
    for part, rest, aside in zip(PARTS, kept, held, strict=True):
        assert sorted([*rest, *aside]) == list(part)
        assert list(rest) == sorted(rest), "the order of what is left is the split's"


def test_another_seed_holds_other_rows_out_and_the_same_seed_the_same():
    (_, one), (_, again), (_, other) = (hold_out(PARTS, 0.2, seed) for seed in (0, 0, 1))
    assert all((a == b).all() for a, b in zip(one, again, strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_a_party_draws_by_itself_whatever_the_others_have():
    (_, together), (_, fewer) = hold_out(PARTS, 0.2, 0), hold_out(PARTS[:1], 0.2, 0)
    assert np.array_equal(together[0], fewer[0])


def test_a_party_that_would_have_nothing_left_is_named():
    with pytest.raises(UserError, match=r"party 1 has 1 row, too few to hold 0\.2"):
        hold_out([np.arange(9), np.arange(9, 10)], 0.2, 0)


def test_without_a_share_nothing_changes_and_old_runs_keep_their_name(monkeypatch):
    config, data = settings("moon"), some_digits()
    assert sorted(np.concatenate(split_rows(resolve(config, data), data))) == list(range(len(data.labels)))
    before = config.identity
    monkeypatch.setattr("moonfed.training.config.NEWER", {})
    assert config.identity != before, "a setting at the value that changes nothing is left out of a run's name"
    assert config.identity != settings("moon", data__validation=0.2).identity


@pytest.mark.parametrize("name", ["moon", "solo", "centralised"])
def test_the_test_set_has_no_part_in_a_run_that_is_judged_on_held_out_rows(name):
    data = some_digits()
    shuffled = replace(data, test_labels=(data.test_labels + 1) % 10, test_inputs=torch.zeros_like(data.test_inputs))
    config = settings(name, data__validation=0.25)
    (_, (one,)), (_, (other,)) = trained(config, data=data), trained(config, data=shuffled)
    timed = {"seconds", "training_seconds"}
    for a, b in zip(one, other, strict=True):
        assert {k: v for k, v in a.items() if k not in timed} == {k: v for k, v in b.items() if k not in timed}
    assert (
        trained(settings(name), data=data)[1][0][-1]["accuracy"]
        != trained(settings(name), data=shuffled)[1][0][-1]["accuracy"]
    )


def test_held_out_rows_have_no_part_in_training():
    data, config = some_digits(), settings("fedavg", data__validation=0.25)
    _, held_out = hold_out(split_rows(resolve(config, data), data), 0.25, config.run.seed)
    held = torch.from_numpy(np.concatenate(held_out))
    inputs = data.inputs.clone()
    inputs[held] = 0
    assert gap(run_one(config, data=data).state, run_one(config, data=replace(data, inputs=inputs)).state) == 0


def test_a_run_says_on_what_it_was_judged(place):
    assert "on rows held out of training" in moonfed("run", *SMALL, "--validation", "0.2").out
    assert "--validation" in moonfed("run", *SMALL, "--validation", "1").err
