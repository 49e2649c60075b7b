"""Figures of runs without a server: the parties' models, and how far they are apart."""

import statistics
from collections.abc import Sequence

from moonfed.storage.run_record import RunRecord
from moonfed.training.records import RoundRecord


def consensus_figures(records: Sequence[RunRecord]) -> dict[str, float | None]:
    """Average over a method's trials what their last evaluated round says of a graph; empty without a graph."""
    last = [row for record in records if record.failure is None and (row := last_on_graph(record)) is not None]
    if not last:
        return {}
    return {
        "mean_of_parties": _mean([row["accuracy"] for row in last]),
        "worst_party": _mean([row.get("worst_accuracy") for row in last]),
        "consensus_model": _mean([_consensus_accuracy(row) for row in last]),
        "consensus_distance": _mean([row.get("consensus_distance") for row in last]),
    }


def _consensus_accuracy(row: RoundRecord) -> float | None:
    """Return the accuracy of the consensus model; beside a companion's personal models it is the global one."""
    return row.get("consensus_accuracy", row.get("global_accuracy"))


def last_on_graph(record: RunRecord) -> RoundRecord | None:
    """Return the last round that evaluated the parties' models."""
    return next((row for row in reversed(record.rows) if row.get("consensus_distance") is not None), None)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
