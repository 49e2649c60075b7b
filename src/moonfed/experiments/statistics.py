"""Statistics shared by every table and verdict."""

import math
import statistics
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from scipy.special import stdtrit

Key = TypeVar("Key", bound=Hashable)
BETTER, WORSE = "better", "worse"
INDISTINGUISHABLE, ONE_PAIR = "statistically indistinguishable", "one seed"


class Interval(NamedTuple):
    """A mean over n values with the ends of its 95 % t-interval; a single value has no ends."""

    mean: float
    low: float | None
    high: float | None
    n: int


def deviation(values: Sequence[float]) -> float | None:
    """Standard deviation with n - 1 in the denominator; None for a single value."""
    return statistics.stdev(values) if len(values) > 1 else None


def interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """Mean of some values with its t-interval."""
    mean, n = statistics.fmean(values), len(values)
    if n < 2:
        return Interval(mean, None, None, n)
    half = t_quantile((1 + level) / 2, n - 1) * statistics.stdev(values) / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n)


def paired(one: Mapping[Key, float], other: Mapping[Key, float]) -> Interval | None:
    """Mean of the first minus the second over the keys that both have; None if they share none."""
    differences = [value - other[key] for key, value in one.items() if key in other]
    return interval(differences) if differences else None


def verdict(difference: Interval) -> str:
    """What the interval of a paired difference shows: better, worse, or indistinguishable if it contains 0."""
    if difference.low is None or difference.high is None:
        return ONE_PAIR
    return BETTER if difference.low > 0 else WORSE if difference.high < 0 else INDISTINGUISHABLE


def rounds_to(rows: Sequence[Mapping[str, Any]], target: float) -> int | None:
    """First round whose accuracy reaches a target; None if none does."""
    reached = (row["round"] for row in rows if row["accuracy"] is not None and row["accuracy"] >= target)
    return next(reached, None)


def t_quantile(p: float, freedom: int) -> float:
    """Quantile of Student's t distribution: the value below which it lies with probability p."""
    if not (0 < p < 1 and freedom >= 1):
        raise ValueError(f"t_quantile needs 0 < p < 1 and freedom >= 1, got {p} and {freedom}")
    return float(stdtrit(freedom, p))
