"""What a paired difference says of a published one: a 95 % t-interval, and one of five words."""

import statistics
from collections.abc import Mapping

from moonfed.experiments.statistics import Interval

HOLDS, SMALLER, CONTRADICTED = "holds", "holds, smaller", "contradicted"
NOT_SHOWN, NOT_RUN = "not shown", "not run"


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
