"""The heat map of Figures 5, 9 and 10: rows of each class at each party."""

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moonfed.core.errors import UserError
from moonfed.core.files import write_bytes
from moonfed.data.partition import BETA_PARTITIONS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = (".png", ".svg", ".pdf")


def draw_heatmap(split: dict[str, Any], path: Path) -> None:
    """Write the heat map to a file."""
    if path.suffix.lower() not in KINDS:
        raise UserError(f"--plot writes {', '.join(KINDS)} files, got {path.name}")
    content = BytesIO()
    heatmap(split).savefig(content, format=path.suffix[1:].lower(), dpi=160)
    write_bytes(path, content.getvalue())


def heatmap(split: dict[str, Any], width: float | None = None) -> "Figure":
    """Plot the rows of each class at each party; without a width, in inches, it follows from the number of parties."""
    from matplotlib.figure import Figure

    counts = list(zip(*split["class_counts"], strict=True))  # [class][party]
    classes, parties = len(counts), len(counts[0])
    inches = max(4.2, min(12, 1.6 + 0.34 * parties)) if width is None else width
    figure = Figure(figsize=(inches, max(3.2, min(9, 1.2 + 0.3 * min(classes, 25)))))
    axes = figure.subplots()
    image = axes.imshow(counts, cmap="Blues", aspect="auto", origin="lower", vmin=0)
    axes.set_xlabel("party")
    axes.set_ylabel("class")
    axes.set_xticks(range(0, parties, max(1, parties // 20 if width is None else -(-parties // 10))))
    axes.set_yticks(range(0, classes, max(1, classes // 20)))
    _name_ticks(axes, split)
    seed = "" if split["partition"] == "natural" else f", split seed {split['seed']}"
    skew = f", β = {split['beta']:g}" if split["partition"] in BETA_PARTITIONS else ""
    axes.set_title(f"{split['dataset']}, {split['partition']}{skew}{seed}", fontsize=10)
    if parties * classes <= 200 and parties <= 4.2 * inches:
        top = max(max(row) for row in counts)
        for k, row in enumerate(counts):
            for party, count in enumerate(row):
                shade = "white" if count > 0.6 * top else "black"
                axes.text(party, k, str(count), ha="center", va="center", fontsize=6, color=shade)
    figure.colorbar(image, ax=axes, label="rows")
    figure.tight_layout()
    return figure


def _name_ticks(axes: Any, split: dict[str, Any]) -> None:
    """Write the names of parties and classes at the ticks, where they have names."""
    parties, classes = split.get("party_names"), split.get("class_names")
    if parties:
        axes.set_xticklabels([shorten(parties[int(k)]) for k in axes.get_xticks()], rotation=45, ha="right")
    if classes:
        axes.set_yticklabels([shorten(classes[int(k)]) for k in axes.get_yticks()])


def shorten(name: str, length: int = 16) -> str:
    """Cut a name to fit a figure; matplotlib would read dollar signs as a formula."""
    cut = name if len(name) <= length else name[: length - 1] + "…"
    return cut.replace("$", r"\$")
