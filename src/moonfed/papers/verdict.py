"""Verdicts on published differences: where the 95 % t-interval of the measured paired difference lies."""

import statistics
from collections.abc import Mapping

from moonfed.experiments.statistics import BETTER, WORSE, Interval, side

HOLDS, SMALLER, CONTRADICTED = "holds", "holds, smaller", "contradicted"
NOT_SHOWN, NOT_RUN = "not shown", "not run"


def units(values: Mapping[tuple[int, int], float]) -> list[float]:
    """Independent values among those of (split, seed): all of them on one split, else the mean of each split."""
    splits = list(dict.fromkeys(split for split, _ in values))
    if len(splits) == 1:
        return list(values.values())
    return [statistics.fmean(v for (at, _), v in values.items() if at == split) for split in splits]


def judge(difference: Interval | None, margin: float | None) -> str:
    """Judge a difference that was published as positive; without a margin, only its sign is tested."""
    if difference is None:
        return NOT_RUN
    found = side(difference)
    if found == BETTER and difference.high is not None:
        return HOLDS if margin is None or difference.high >= margin else SMALLER
    return CONTRADICTED if found == WORSE else NOT_SHOWN


def judge_level(difference: Interval | None, within: float) -> str:
    """Judge the claim that two methods are level: the whole interval within a bound of 0, or wholly outside."""
    if difference is None:
        return NOT_RUN
    if difference.low is None or difference.high is None:
        return NOT_SHOWN
    if -within <= difference.low and difference.high <= within:
        return HOLDS
    return CONTRADICTED if difference.low > within or difference.high < -within else NOT_SHOWN
