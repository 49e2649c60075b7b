"""The heat map of Figures 5, 9 and 10: rows of each class at each party."""

from io import BytesIO
from pathlib import Path
from typing import Any

from moonfed.core.errors import UserError
from moonfed.data.disk import write_bytes

KINDS = (".png", ".svg", ".pdf")


def draw_heatmap(split: dict[str, Any], path: Path) -> None:
    """Draw who holds how many rows of which class."""
    if path.suffix.lower() not in KINDS:
        raise UserError(f"--plot draws {', '.join(KINDS)}, got {path.name}")
    from matplotlib.figure import Figure

    counts = list(zip(*split["class_counts"], strict=True))  # [class][party]
    classes, parties = len(counts), len(counts[0])
    figure = Figure(figsize=(max(4.2, min(12, 1.6 + 0.34 * parties)), max(3.2, min(9, 1.2 + 0.3 * min(classes, 25)))))
    axes = figure.subplots()
    image = axes.imshow(counts, cmap="Blues", aspect="auto", origin="lower", vmin=0)
    axes.set_xlabel("party")
    axes.set_ylabel("class")
    axes.set_xticks(range(0, parties, max(1, parties // 20)))
    axes.set_yticks(range(0, classes, max(1, classes // 20)))
    skew = f", β = {split['beta']:g}" if split["partition"] in ("dirichlet", "dirichlet-pure", "quantity") else ""
    axes.set_title(f"{split['dataset']}, {split['partition']}{skew}, split seed {split['seed']}", fontsize=10)
    if parties * classes <= 200:
        top = max(max(row) for row in counts)
        for k, row in enumerate(counts):
            for party, count in enumerate(row):
                shade = "white" if count > 0.6 * top else "black"
                axes.text(party, k, str(count), ha="center", va="center", fontsize=6, color=shade)
    figure.colorbar(image, ax=axes, label="rows")
    figure.tight_layout()
    drawn = BytesIO()
    figure.savefig(drawn, format=path.suffix[1:].lower(), dpi=160)
    write_bytes(path, drawn.getvalue())
