"""What is read from a trial: accuracy at the end, rounds to a target, training loss, seconds."""

import statistics
from collections.abc import Sequence

from moonfed.experiments.statistics import LAST, rounds_to
from moonfed.training.records import RoundRecord


def final_accuracy(rows: Sequence[RoundRecord]) -> float:
    """The mean test accuracy of the last ten rounds, in per cent: never the best round."""
    return statistics.fmean(curve(rows)[-LAST:])


def last_accuracy(rows: Sequence[RoundRecord]) -> float:
    """The test accuracy of the last round, in per cent."""
    return curve(rows)[-1]


def curve(rows: Sequence[RoundRecord]) -> list[float]:
    """The test accuracy of every round, in per cent."""
    return [100 * row["accuracy"] for row in rows]


def loss_curve(rows: Sequence[RoundRecord]) -> list[float]:
    """The training loss of every round, all its parts together."""
    return [sum(row["losses"].values()) for row in rows]


def final_loss(rows: Sequence[RoundRecord]) -> float:
    """The mean training loss of the last ten rounds."""
    return statistics.fmean(loss_curve(rows)[-LAST:])


def first_crossing(rows: Sequence[RoundRecord], target: float) -> int:
    """The first round with the target accuracy, a fraction; one round more than were run if there is none."""
    return rounds_to(rows, target) or len(rows) + 1


def seconds_a_round(rows: Sequence[RoundRecord]) -> float:
    """The median seconds of a round, the first left out: it pays for compiling and first uses."""
    return statistics.median(row["seconds"] for row in (rows[1:] or rows))
