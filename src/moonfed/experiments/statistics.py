"""The few statistics every table and verdict is made of: each has this one home."""

import math
import statistics
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

LAST = 10  # rounds whose mean is the primary figure
Key = TypeVar("Key", bound=Hashable)


class Interval(NamedTuple):
    """A mean over n values with the ends of its 95 % t-interval; a single value has no ends."""

    mean: float
    low: float | None
    high: float | None
    n: int


def last_ten(rows: Sequence[Mapping[str, Any]], name: str = "accuracy") -> float | None:
    """The mean of a figure over those of a run's last ten rounds that were evaluated."""
    values = [row[name] for row in rows[-LAST:] if row.get(name) is not None]
    return statistics.fmean(values) if values else None


def deviation(values: Sequence[float]) -> float | None:
    """The standard deviation with n - 1 in the denominator; a single value has none."""
    return statistics.stdev(values) if len(values) > 1 else None


def interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """The mean of some values and its t-interval."""
    mean, n = statistics.fmean(values), len(values)
    if n < 2:
        return Interval(mean, None, None, n)
    half = t_quantile((1 + level) / 2, n - 1) * statistics.stdev(values) / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n)


def paired(one: Mapping[Key, float], other: Mapping[Key, float]) -> Interval | None:
    """The first minus the second over the seeds that both have; None where they share none."""
    gaps = [value - other[key] for key, value in one.items() if key in other]
    return interval(gaps) if gaps else None


def rounds_to(rows: Sequence[Mapping[str, Any]], target: float) -> int | None:
    """The first round whose accuracy reaches a target; None if none does."""
    reached = (row["round"] for row in rows if row["accuracy"] is not None and row["accuracy"] >= target)
    return next(reached, None)


def t_quantile(p: float, freedom: int) -> float:
    """The value below which Student's t with so many degrees of freedom lies with probability p."""
    if not (0 < p < 1 and freedom >= 1):
        raise ValueError(f"t_quantile needs 0 < p < 1 and freedom >= 1, got {p} and {freedom}")
    if p < 0.5:
        return -t_quantile(1 - p, freedom)
    # P(|t| > x) = I_v(freedom / 2, 1/2) with v = freedom / (freedom + x^2), which rises with v.
    low, high, tail = 0.0, 1.0, 2 * (1 - p)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if incomplete_beta(middle, freedom / 2, 0.5) < tail else (low, middle)
    v = (low + high) / 2
    return math.sqrt(freedom * (1 - v) / v)


def incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # there the fraction converges slowly
        return 1 - incomplete_beta(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    return front / a * _fraction(x, a, b)


def _fraction(x: float, a: float, b: float) -> float:
    """Lentz's evaluation of the continued fraction of the incomplete beta function."""
    tiny = 1e-300
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1) or tiny)
    value = d
    for m in range(1, 1000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for part in (even, odd):
            d = 1 / (1 + part * d or tiny)
            c = 1 + part / c or tiny
            value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value
