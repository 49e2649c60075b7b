"""The parties' models of runs without a server: how good each is, and how far they are apart."""

import statistics
from collections.abc import Sequence

from moonfed.report.blocks import Table
from moonfed.report.cell_text import EMPTY
from moonfed.report.methods import Setting
from moonfed.storage.run_record import RunRecord
from moonfed.training.records import RoundRecord

NOTE = (
    "Of the last evaluated round. Accuracy without a server is the mean over the parties' models. The consensus model, "
    "the mean of their weights, is the one that is saved. Consensus distance: the root mean square over the parties of "
    "the distance of their weights to it."
)


def consensus_table(named: Sequence[tuple[str, RunRecord]], name: str = "graph") -> Table | None:
    """List methods with the parties' mean, the worst party, the consensus model and the distance; None without any."""
    rows: list[list[str]] = []
    for method in dict.fromkeys(label for label, _ in named):
        found = [_last(record) for label, record in named if label == method and record.failure is None]
        last = [row for row in found if row is not None]
        if last:
            values = [(row["accuracy"], row.get("worst_accuracy"), row.get("consensus_accuracy")) for row in last]
            accuracies = [_mean(of_trials) for of_trials in zip(*values, strict=True)]
            distance = _mean([row.get("consensus_distance") for row in last])
            cells = [EMPTY if value is None else f"{100 * value:.1f}" for value in accuracies]
            rows.append([method, *cells, EMPTY if distance is None else f"{distance:.3g}"])
    columns = ["method", "mean of parties, %", "worst party, %", "consensus model, %", "consensus distance"]
    return Table(name, "Models of the parties", columns, rows, "lrrrr", note=NOTE) if rows else None


def setting_consensus(setting: Setting, name: str) -> Table | None:
    """Make the table of a setting's methods."""
    return consensus_table([(method.name, record) for method in setting.methods for record in method.records], name)


def consensus_text(record: RunRecord) -> str | None:
    """Describe the parties' models of one run in a line."""
    row = _last(record)
    if row is None:
        return None
    mean, worst, consensus = row["accuracy"], row.get("worst_accuracy"), row.get("consensus_accuracy")
    distance = row.get("consensus_distance")
    if mean is None or worst is None or consensus is None or distance is None:
        return None
    return (
        f"parties' models: mean {mean:.1%}, worst {worst:.1%}; consensus model {consensus:.1%}, consensus distance "
        f"{distance:.3g}"
    )


def _last(record: RunRecord) -> RoundRecord | None:
    """Return the last round that evaluated the parties' models."""
    return next((row for row in reversed(record.rows) if row.get("consensus_distance") is not None), None)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
