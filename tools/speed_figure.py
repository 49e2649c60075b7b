"""Draw what a party-step takes against lanes, and what a round takes against parties, from files of moonfed bench.

    python tools/speed_figure.py FIGURE LABEL=FILE ...     # FIGURE.png and FIGURE.svg

A FILE has runs of several widths (bench --lanes) or of several populations (bench --populations).
"""

import json
import sys
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
Points = list[tuple[float, float]]


def lanes_of(bench: dict[str, Any]) -> Points:
    """Read lanes and microseconds per party-step from the runs in which every party has a lane."""
    timings = [t for t in bench.get("timings", []) if "parties" in str(t.get("way"))]
    return [(t["lanes"], t["us_per_party_step"]) for t in timings]


def populations_of(bench: dict[str, Any]) -> Points:
    """Read parties and seconds per round."""
    return [(found["parties"], found["round_seconds"]) for found in bench.get("populations", [])]


def draw(benches: dict[str, dict[str, Any]]) -> Figure:
    """Draw both panels, with a line per file."""
    figure = Figure(figsize=(10, 4.2))
    panels = zip(
        figure.subplots(1, 2),
        (lanes_of, populations_of),
        (("lanes", "microseconds per party-step of MOON"), ("parties", "seconds per round of 50 of them, MOON")),
        strict=True,
    )
    for axes, read, (across, up) in panels:
        lines = [(label, points) for label, bench in benches.items() if (points := read(bench))]
        for colour, (label, points) in zip(COLOURS, lines, strict=False):
            axes.plot(*zip(*points, strict=True), color=colour, marker="o", label=label)
        axes.set_xscale("log")
        axes.set_xticks(sorted({x for _, points in lines for x, _ in points}))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.minorticks_off()
        axes.set_ylim(0, 1.1 * max((y for _, points in lines for _, y in points), default=1))
        axes.set_xlabel(across)
        axes.set_ylabel(up)
        axes.grid(axis="y", alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc="lower left", frameon=False, fontsize=9)
    figure.tight_layout()
    return figure


def main() -> None:
    """Read the files and write the figure."""
    target, *sources = sys.argv[1:]
    named = [source.partition("=") for source in sources]
    figure = draw({label: json.loads(Path(file).read_text()) for label, _, file in named})
    for kind in ("png", "svg"):
        figure.savefig(f"{target}.{kind}", dpi=150, metadata={"Date": None} if kind == "svg" else None)


if __name__ == "__main__":
    main()
