"""The accuracy of a trial, one definition for every table, page and JSON output; always a fraction."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from moonfed.training.early_stopping import best_round

MAX_ROUNDS_AVERAGED = 10


def accuracy(rounds: Sequence[Mapping[str, Any]]) -> float | None:
    """Mean accuracy over the last quarter of the evaluated rounds, at least one and at most ten of them.

    The papers' recipes of 100 rounds average exactly the last ten. A mean over all of a short run would measure how
    fast a method starts rather than how good it becomes. With early stopping it is the accuracy of the model that is
    kept, because the rounds after it are discarded. None if no round was evaluated.
    """
    if best_round(rounds) is not None:
        return final_accuracy(rounds)
    values = _evaluated(rounds)
    return statistics.fmean(values[-rounds_averaged(len(values)) :]) if values else None


def final_accuracy(rounds: Sequence[Mapping[str, Any]]) -> float | None:
    """Accuracy of the final model: that of the last evaluated round, or with early stopping of the best one."""
    best = best_round(rounds)
    values = _evaluated(rounds if best is None else rounds[:best])
    return values[-1] if values else None


def rounds_averaged(evaluated: int) -> int:
    """Number of rounds that accuracy() averages, given the number of evaluated rounds."""
    return min(evaluated, MAX_ROUNDS_AVERAGED, max(1, evaluated // 4))


def accuracy_window(rounds: Sequence[Mapping[str, Any]]) -> str:
    """Name the rounds behind accuracy() in a few words."""
    if best_round(rounds) is not None:
        return "best round"
    averaged = rounds_averaged(len(_evaluated(rounds)))
    return "last round" if averaged <= 1 else f"mean of the last {averaged} rounds"


def _evaluated(rounds: Sequence[Mapping[str, Any]]) -> list[float]:
    return [row["accuracy"] for row in rounds if row.get("accuracy") is not None]
