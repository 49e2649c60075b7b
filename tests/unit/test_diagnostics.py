"""A run that has learned nothing says so in one line; one that has, does not."""

import logging
from typing import Any

import numpy as np
import pytest
from worlds import settings, trained

from moonfed import fit


@pytest.mark.parametrize("seed", range(3))
def test_a_run_that_learns_nothing_warns_and_one_that_learns_does_not(caplog, seed):
    caplog.set_level(logging.WARNING, "moonfed")
    trained(settings("fedavg", train__lr=1e-6, train__rounds=1, run__seed=seed))
    (line,) = caplog.messages
    assert "no better than guessing by class shares" in line
    assert f"fedavg, seed {seed}" in line
    caplog.clear()
    trained(settings("fedavg", train__lr=0.05, train__rounds=4, train__epochs=5, run__seed=seed))
    assert not caplog.messages


def test_only_true_stops_a_run():
    heard: list[int] = []
    answers = iter([1, np.ones(2), "stop", None])

    def callback(record: Any) -> Any:
        heard.append(record["round"])
        return next(answers)

    fit("mlp", "digits", parties=4, rounds=4, epochs=1, callbacks=[callback], progress=False)
    assert heard == [1, 2, 3, 4]
