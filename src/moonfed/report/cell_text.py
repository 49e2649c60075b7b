"""Accuracies, intervals and differences as the text of a cell."""

import re
import statistics
from collections.abc import Collection, Iterable

from moonfed.core.wording import signed
from moonfed.experiments.statistics import Interval, accuracy_interval, deviation, no_interval

EMPTY = ""


def mean_and_deviation(values: Collection[float]) -> str:
    """Format a mean with its standard deviation, in per cent."""
    found = list(values)
    if not found:
        return "no completed trial"
    std = deviation(found)
    return f"{100 * statistics.fmean(found):.1f}" + ("" if std is None else f" ± {100 * std:.1f}")


def interval_text(values: Collection[float], noun: str = "seed") -> str:
    """Format the 95 % interval of accuracies, in per cent, or the reason why there is none."""
    return ends_text(accuracy_interval(list(values)), noun) if values else EMPTY


def ends_text(over: Interval, noun: str = "seed", sign: str = "") -> str:
    """Format the ends of an accuracy's interval, in per cent, or the reason why it has none."""
    if over.low is None or over.high is None:
        return no_interval(over, noun) or EMPTY
    return f"{100 * over.low:.1f}{sign} to {100 * over.high:.1f}{sign}"


def points(difference: Interval) -> str:
    """Format a difference in points of accuracy, with its interval if it has one."""
    if difference.low is None or difference.high is None:
        return signed(100 * difference.mean)
    return f"{signed(100 * difference.mean)} ({signed(100 * difference.low)} to {signed(100 * difference.high)})"


def joined(items: Iterable[object]) -> str:
    """Join words with commas, each once."""
    return ", ".join(dict.fromkeys(str(item) for item in items))


def slug(text: str) -> str:
    """Make a file name of a text."""
    return re.sub(r"[^A-Za-z0-9.=+]+", "-", text).strip("-.") or "unnamed"
