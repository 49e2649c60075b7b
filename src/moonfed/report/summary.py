"""What a comparison shows, method by method."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from moonfed.experiments.statistics import deviation, paired
from moonfed.storage.run_folder import last_accuracy
from moonfed.storage.run_record import RunRecord


@dataclass(frozen=True)
class Summary:
    """One method over its seeds: last-round test accuracy, as a fraction."""

    method: str
    seeds: list[int]
    accuracies: list[float]
    failures: list[str]
    seconds: float  # a round, all its trials together
    megabytes: float  # up and down, a round

    @property
    def mean(self) -> float | None:
        """The mean over the seeds that ran."""
        return statistics.fmean(self.accuracies) if self.accuracies else None

    @property
    def std(self) -> float | None:
        """The standard deviation over the seeds, n - 1 in the denominator; a single seed has none."""
        return deviation(self.accuracies)

    def as_json(self) -> dict[str, Any]:
        """The object that compare --json prints."""
        names = ("method", "mean", "std", "seeds", "accuracies", "failures", "seconds", "megabytes")
        return {name: getattr(self, name) for name in names}


def summaries(outcomes: Sequence[tuple[str, RunRecord]]) -> list[Summary]:
    """Sum up the trials of each method, in the order in which the methods were named."""
    found: list[Summary] = []
    for method in dict.fromkeys(name for name, _ in outcomes):
        mine = [outcome for name, outcome in outcomes if name == method]
        whole = [o for o in mine if o.failure is None and last_accuracy(o.rows) is not None]
        rows = [row for outcome in whole for row in outcome.rows]
        found.append(
            Summary(
                method,
                [outcome.config.run.seed for outcome in whole],
                [last_accuracy(outcome.rows) or 0.0 for outcome in whole],
                [outcome.failure for outcome in mine if outcome.failure is not None],
                statistics.fmean(row["seconds"] for row in rows) if rows else 0.0,
                statistics.fmean((row["bytes_up"] + row["bytes_down"]) / 1e6 for row in rows) if rows else 0.0,
            )
        )
    return found


def paired_difference(one: Summary, other: Summary) -> float | None:
    """The mean difference of accuracy over the seeds that both methods have."""
    mine, others = (dict(zip(s.seeds, s.accuracies, strict=True)) for s in (one, other))
    found = paired(mine, others)
    return None if found is None else found.mean
