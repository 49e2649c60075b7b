"""The parties' models of runs without a server: how good each is, and how far they are apart."""

from moonfed.report.blocks import Table
from moonfed.report.cell_text import EMPTY
from moonfed.report.graph_figures import consensus_figures, last_on_graph
from moonfed.report.methods import Setting
from moonfed.storage.run_record import RunRecord
from moonfed.training.evaluation_rows import judged_on_own_rows

NOTE = (
    "Of the last evaluated round. Accuracy without a server is the mean over the parties' models. The consensus model "
    "is the mean of their weights. Consensus distance: the root mean square over the parties of the distance of their "
    "weights to it."
)
SAVED = " The consensus model is the one that is saved."
OWN_ROWS = " Accuracies of parties are on rows like their own, that of the consensus model is on all rows."


def consensus_table(setting: Setting, name: str) -> Table | None:
    """List methods with the parties' mean, the worst party, the consensus model and the distance; None without any."""
    rows: list[list[str]] = []
    for method in setting.methods:
        figures = consensus_figures(method.records)
        if figures:
            *accuracies, distance = figures.values()
            cells = [EMPTY if value is None else f"{100 * value:.1f}" for value in accuracies]
            rows.append([method.name, *cells, EMPTY if distance is None else f"{distance:.3g}"])
    note = NOTE + (OWN_ROWS if judged_on_own_rows(setting.config) else SAVED)
    columns = ["method", "mean of parties, %", "worst party, %", "consensus model, %", "consensus distance"]
    return Table(name, "Models of the parties", columns, rows, "lrrrr", note=note) if rows else None


def consensus_text(record: RunRecord) -> str | None:
    """Describe the parties' models of one run in a line."""
    row = last_on_graph(record)
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
