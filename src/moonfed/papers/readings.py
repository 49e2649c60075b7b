"""Measures of one trial besides its accuracy: curves, training loss, rounds to a target, seconds."""

import statistics
from collections.abc import Sequence

from moonfed.experiments.statistics import rounds_to
from moonfed.training.accuracy import rounds_averaged
from moonfed.training.records import RoundRecord


def accuracy_curve(rows: Sequence[RoundRecord]) -> list[float]:
    """Test accuracy of every evaluated round, as a fraction."""
    return [row["accuracy"] for row in rows if row["accuracy"] is not None]


def loss_curve(rows: Sequence[RoundRecord]) -> list[float]:
    """Training loss of every round, all its parts together."""
    return [sum(row["losses"].values()) for row in rows]


def loss(rows: Sequence[RoundRecord]) -> float:
    """Mean training loss over the same last rounds that accuracy averages."""
    return statistics.fmean(loss_curve(rows)[-rounds_averaged(len(rows)) :])


def first_crossing(rows: Sequence[RoundRecord], target: float) -> int:
    """First round with the target accuracy, a fraction; one more than were run if there is none."""
    return rounds_to(rows, target) or len(rows) + 1


def seconds_per_round(rows: Sequence[RoundRecord]) -> float:
    """Median seconds per round without the first, which includes compilation and other one-time costs."""
    return statistics.median(row["seconds"] for row in (rows[1:] or rows))
