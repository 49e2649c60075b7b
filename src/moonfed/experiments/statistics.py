"""Statistics shared by every table and verdict."""

import math
import statistics
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from scipy.special import stdtrit

from moonfed.core.wording import counted

Key = TypeVar("Key", bound=Hashable)
BETTER, WORSE = "better", "worse"
INDISTINGUISHABLE, ONE_PAIR = "statistically indistinguishable", "one seed"
TWO_EQUAL = "two equal differences"  # as happens with few test rows; their interval has no width
ROUNDING = 1e-9  # differences of accuracies that are equal by count differ by less
MIN_VALUES = 3  # of an accuracy's interval: the interval of two values is 12.7 standard errors to either side


class Interval(NamedTuple):
    """A mean over n values with the ends of its 95 % interval; low and high are None where there is none."""

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


def accuracy_interval(values: Sequence[float], top: float = 1.0) -> Interval:
    """Mean of accuracies, or of other figures from 0 to a top, with its t-interval cut to their range.

    Cutting loses no coverage, because a mean accuracy cannot lie outside. Fewer than three values give no interval, nor
    do equal ones: a width of zero would claim a certainty that they do not show.
    """
    mean, low, high, n = interval(values)
    if low is None or high is None or n < MIN_VALUES or min(values) == max(values):
        return Interval(mean, None, None, n)
    return Interval(mean, max(0.0, low), min(top, high), n)


def no_interval(accuracy: Interval, noun: str = "seed") -> str | None:
    """Say why an accuracy has no interval; None if it has one."""
    if accuracy.low is not None:
        return None
    equal = "" if accuracy.n < MIN_VALUES else "equal "
    return f"{counted(accuracy.n, equal + noun)}: no interval"


def paired(
    one: Mapping[Key, float], other: Mapping[Key, float], unit: Callable[[Key], Hashable] | None = None
) -> Interval | None:
    """Mean of the first minus the second over the keys that both have; None if they share none.

    With units the interval is over the units, each with the mean difference of its keys.
    """
    differences = {key: value - other[key] for key, value in one.items() if key in other}
    return interval(unit_means(differences, unit)) if differences else None


def unit_means(values: Mapping[Key, float], unit: Callable[[Key], Hashable] | None) -> list[float]:
    """Average the values of each unit, so that units are what varies independently; without units, each value."""
    if unit is None:
        return list(values.values())
    groups: dict[Hashable, list[float]] = {}
    for key, value in values.items():
        groups.setdefault(unit(key), []).append(value)
    return [statistics.fmean(group) for group in groups.values()]


def verdict(difference: Interval) -> str:
    """What a paired difference shows: as side() says, but two equal differences show nothing."""
    low, high = difference.low, difference.high
    if difference.n == 2 and low is not None and high is not None and low != 0 and high - low < ROUNDING:
        return TWO_EQUAL
    return side(difference)


def side(difference: Interval) -> str:
    """Where the interval of a paired difference lies: better, worse, or indistinguishable if it contains 0."""
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
