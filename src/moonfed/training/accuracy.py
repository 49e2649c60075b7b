"""The accuracy of a trial, one definition for every table, page and JSON output; and a word where it is guessing.

An accuracy is always a fraction.
"""

import logging
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from moonfed.training.records import RoundRecord
from moonfed.training.trial import Trial

logger = logging.getLogger(__name__)

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


def warn_about(trial: Trial, rounds: Sequence[RoundRecord]) -> None:
    """Warn if a finished trial does no better than guessing: it diverged, or had too few steps."""
    if not rounds or not trial.done or trial.failure is not None:
        return
    problems: list[str] = []
    loss, guess = rounds[-1]["losses"].get("supervised"), guessing_loss(trial)
    if loss is not None and guess > 0 and loss >= guess:
        problems.append(f"the training loss ended at {loss:.3g}, no better than guessing by class shares ({guess:.3g})")
    reached = accuracy(rounds)
    confusion = (trial.evaluation or {}).get("confusion", [])
    predicted = [k for k, rows in enumerate(zip(*confusion, strict=True)) if any(rows)]
    if len(predicted) == 1 and guess > 0 and reached is not None:
        names = trial.spec.evaluation.class_names
        name = names[predicted[0]] if names else predicted[0]
        problems.append(f"every row is predicted as class {name}, so {reached:.1%} is that class's share")
    if problems:
        logger.warning(
            "%s, seed %s: %s; train longer, or use another lr (if it diverged, a smaller one or max_grad_norm 1)%s",
            trial.spec.label,
            trial.config.run.seed,
            "; ".join(problems),
            ", or optimizer adamw" if trial.config.train.optimizer == "sgd" else "",
        )


def guessing_loss(trial: Trial) -> float:
    """The cross-entropy of predicting the class shares of all training rows, whatever the input."""
    totals = [sum(counts) for counts in zip(*(info.class_counts for info in trial.spec.infos), strict=True)]
    rows = sum(totals)
    return -sum(n / rows * math.log(n / rows) for n in totals if n)
