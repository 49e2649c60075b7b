"""Draw accuracy against skew, one line per method, from the trials that tools/methods_table.py collected.

    python tools/methods_figure.py FILE FIGURE [METHOD ...]     # FIGURE.png and FIGURE.svg; METHODS are coloured

Left: mean accuracy over the seeds. Right: the paired difference to FedAvg, with 95 % intervals for coloured methods.
Methods that are not coloured are grey.
"""

import json
import statistics
import sys
from math import isnan, nan
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from methods_table import SPLITS, mean_of_last, of_split

from moonfed.experiments.statistics import paired

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#882255")
ORDER = ("dirichlet-0.5", "dirichlet-0.1", "two-classes")
LABELS = {"dirichlet-0.5": "Dirichlet 0.5", "dirichlet-0.1": "Dirichlet 0.1", "two-classes": "two classes\nper party"}
BASE, GREY = "fedavg", "#c4c9ce"
Scores = dict[str, dict[str, dict[int, float]]]  # by split, method and seed


def scores_of(lines: list[dict[str, Any]]) -> Scores:
    """Read the accuracy of every trial, by split, method and seed; a method that diverged has no line there."""
    scores: Scores = {}
    for split in SPLITS:
        for line in of_split(lines, split):
            value = nan if line["failure"] else mean_of_last(line)
            scores.setdefault(split, {}).setdefault(line["method"], {})[line["seed"]] = value
    return scores


def draw(scores: Scores, coloured: list[str]) -> Figure:
    """Draw both panels."""
    splits = [split for split in ORDER if split in scores]
    figure = Figure(figsize=(11, 5.2))
    left, right = figure.subplots(1, 2)
    grey = [name for name in scores[splits[0]] if name not in (*coloured, BASE)]
    drawn = [name for name in grey if not all(isnan(sum(scores[s].get(name, {0: nan}).values())) for s in splits)]
    for name in [*grey, BASE, *coloured]:
        own = [scores[split].get(name, {0: nan}) for split in splits]  # a method may not have been run everywhere
        means = [100 * statistics.fmean(seeds.values()) for seeds in own]
        gaps = [
            None if isnan(mean) else paired(seeds, scores[split][BASE])
            for mean, seeds, split in zip(means, own, splits, strict=True)
        ]
        style = _style(name, coloured)
        left.plot(range(len(splits)), means, **style)
        right.plot(range(len(splits)), [100 * gap.mean if gap else nan for gap in gaps], **style)
        if name in coloured:
            shift = 0.03 * (coloured.index(name) - len(coloured) / 2)
            for place, gap in enumerate(gaps):
                if gap is not None and gap.low is not None and gap.high is not None:
                    right.plot([place + shift] * 2, [100 * gap.low, 100 * gap.high], color=style["color"], linewidth=1)
    for axes, what in ((left, "test accuracy, %"), (right, "difference to FedAvg, points")):
        _finish(axes, splits, what)
    if drawn:
        left.plot([], [], color=GREY, linewidth=1, label=f"{len(drawn)} others")
    left.legend(loc="lower left", frameon=False, fontsize=9)
    figure.tight_layout()
    return figure


def _style(name: str, coloured: list[str]) -> dict[str, Any]:
    if name == BASE:
        return {"color": "black", "linewidth": 2, "marker": "o", "markersize": 4, "label": "fedavg", "zorder": 3}
    if name not in coloured:
        return {"color": GREY, "linewidth": 1, "marker": "o", "markersize": 2, "zorder": 1}
    colour = COLOURS[coloured.index(name) % len(COLOURS)]
    return {"color": colour, "linewidth": 1.8, "marker": "o", "markersize": 4, "label": name, "zorder": 2}


def _finish(axes: Axes, splits: list[str], what: str) -> None:
    axes.set_xticks(range(len(splits)), [LABELS[split] for split in splits])
    axes.set_xlim(-0.2, len(splits) - 0.8)
    axes.set_ylabel(what)
    axes.grid(axis="y", alpha=0.25)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def main() -> None:
    """Read the trials and write the figure."""
    source, target, *coloured = sys.argv[1:]
    lines = [json.loads(line) for line in Path(source).read_text().splitlines()]
    figure = draw(scores_of(lines), coloured)
    for kind in ("png", "svg"):
        figure.savefig(f"{target}.{kind}", dpi=150, metadata={"Date": None} if kind == "svg" else None)


if __name__ == "__main__":
    main()
