"""What a paired difference says of a published one: a 95 % t-interval, and one of five words."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95
HOLDS, SMALLER, CONTRADICTED = "holds", "holds, smaller", "contradicted"
NOT_SHOWN, NOT_RUN = "not shown", "not run"


@dataclass(frozen=True)
class Interval:
    """The mean of some numbers and where it may lie; no ends if there are fewer than two numbers."""

    mean: float
    low: float | None
    high: float | None
    count: int


def interval(values: Sequence[float]) -> Interval | None:
    """Find the t-interval of the mean of some numbers."""
    if not values:
        return None
    mean = statistics.fmean(values)
    if len(values) == 1:
        return Interval(mean, None, None, 1)
    half = t_quantile(CONFIDENCE, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half, len(values))


def units(values: Mapping[tuple[int, int], float]) -> list[float]:
    """List what is independent in values of (split, seed): all of them on one split, else the mean of each split."""
    splits = list(dict.fromkeys(split for split, _ in values))
    if len(splits) == 1:
        return list(values.values())
    return [statistics.fmean(v for (at, _), v in values.items() if at == split) for split in splits]


def judge(found: Interval | None, margin: float | None) -> str:
    """Say whether a difference that was published as positive holds; without a margin there is none to reach."""
    if found is None:
        return NOT_RUN
    if found.low is None or found.high is None:
        return NOT_SHOWN
    if found.low > 0:
        return HOLDS if margin is None or found.high >= margin else SMALLER
    return CONTRADICTED if found.high < 0 else NOT_SHOWN


def judge_level(found: Interval | None, within: float) -> str:
    """Say whether two methods are level: the whole interval within so many points of 0, or wholly outside."""
    if found is None:
        return NOT_RUN
    if found.low is None or found.high is None:
        return NOT_SHOWN
    if -within <= found.low and found.high <= within:
        return HOLDS
    return CONTRADICTED if found.low > within or found.high < -within else NOT_SHOWN


def t_quantile(confidence: float, freedom: int) -> float:
    """Find t with P(|T| <= t) = confidence, by bisection of the angle whose tangent is t / sqrt(freedom)."""
    low, high = 0.0, math.pi / 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _between(middle, freedom) < confidence else (low, middle)
    return math.sqrt(freedom) * math.tan((low + high) / 2)


def _between(angle: float, freedom: int) -> float:
    """P(|T| <= sqrt(freedom) tan(angle)), a finite sum (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    sine, cosine = math.sin(angle), math.cos(angle)
    term, total = (cosine, 0.0) if freedom % 2 else (1.0, 0.0)
    for k in range(freedom % 2 + 1, freedom, 2):
        total += term
        term *= cosine**2 * k / (k + 1)
    return 2 / math.pi * (angle + sine * total) if freedom % 2 else sine * total
