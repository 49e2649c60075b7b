"""The accuracy of a trial: one definition for every table, page and JSON output. Always a fraction."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

MAX_ROUNDS_AVERAGED = 10


def accuracy(rounds: Sequence[Mapping[str, Any]]) -> float | None:
    """Mean accuracy over the last quarter of the evaluated rounds, at least one and at most ten of them.

    The papers' recipes of 100 rounds average exactly the last ten. A mean over all of a short run would measure how
    fast a method starts rather than how good it becomes. None if no round was evaluated.
    """
    values = _evaluated(rounds)
    return statistics.fmean(values[-rounds_averaged(len(values)) :]) if values else None


def final_accuracy(rounds: Sequence[Mapping[str, Any]]) -> float | None:
    """Accuracy of the last evaluated round alone; None if no round was evaluated."""
    values = _evaluated(rounds)
    return values[-1] if values else None


def rounds_averaged(evaluated: int) -> int:
    """Number of rounds that accuracy() averages, given the number of evaluated rounds."""
    return min(evaluated, MAX_ROUNDS_AVERAGED, max(1, evaluated // 4))


def accuracy_label(evaluated: int) -> str:
    """Column label of accuracy() for trials with this many evaluated rounds."""
    averaged = rounds_averaged(evaluated)
    return "accuracy (last round)" if averaged <= 1 else f"accuracy (mean of the last {averaged} rounds)"


def _evaluated(rounds: Sequence[Mapping[str, Any]]) -> list[float]:
    return [row["accuracy"] for row in rounds if row.get("accuracy") is not None]
