"""A run that has learned nothing says so in one line; one that has, does not."""

import logging
from typing import Any

import numpy as np
import pytest
from worlds import settings

from moonfed import fit
from moonfed.experiments.execute import execute
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
    assert "every row is predicted as class usual, so 50.0% is that class's share" in line


def test_only_true_stops_a_run():
    heard: list[int] = []
    answers = iter([1, np.ones(2), "stop", None])

    def callback(record: Any) -> Any:
        heard.append(record["round"])
        return next(answers)

    fit("mlp", "digits", parties=4, rounds=4, epochs=1, callbacks=[callback], progress=False)
    assert heard == [1, 2, 3, 4]
