"""Figures in one style with colour-blind-safe colours, as SVG for a page or as files."""

import re
import statistics
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from moonfed.core.files import write_bytes
from moonfed.experiments.statistics import Interval

# Okabe and Ito's palette without yellow, which is hard to see on white; dashes distinguish lines without colour.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (2, 1)), (0, (6, 1.5, 1.5, 1.5)), (0, (1, 1)), (0, (8, 2)))
SIZE = (4.6, 3.3)  # inches: labels stay legible at the width of a phone
KINDS = ("svg", "pdf", "png")
STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#5b6670",
    "axes.labelcolor": "#1d2733",
    "xtick.color": "#3c4650",
    "ytick.color": "#3c4650",
    "text.color": "#1d2733",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e3e6e8",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.6,
    "pdf.fonttype": 42,
}


class Curve(NamedTuple):
    """One method's values by round, for every seed that counts and for failed or stopped trials."""

    label: str
    seeds: Sequence[Mapping[int, float]]  # round to value
    failed: Sequence[Mapping[int, float]] = ()
    style: int | None = None  # index in the palette; default: its index in the figure


class Difference(NamedTuple):
    """A method's difference to the baseline, as a fraction, and its index in the palette."""

    label: str
    interval: Interval
    style: int


def colour(place: int) -> str:
    """Colour of the method at an index; the palette repeats after its end, with other dashes."""
    return COLOURS[place % len(COLOURS)]


def curves(lines: Sequence[Curve], what: str, percent: bool = False) -> Figure:
    """Plot the mean over the seeds by round, with a band from the lowest to the highest seed."""
    scale = 100 if percent else 1
    with matplotlib.rc_context(STYLE):
        columns = _columns([line.label for line in lines])
        more = 0.18 * (-(-len(lines) // columns) - 1)  # inches: the axes keep their height however long the legend is
        figure = Figure(figsize=(SIZE[0], SIZE[1] + more), layout="constrained")
        axes = figure.subplots()
        for place, line in enumerate(lines):
            style = place if line.style is None else line.style
            dash = DASHES[(style % len(COLOURS) + style // len(COLOURS)) % len(DASHES)]  # a pair of its own up to 42
            rounds = sorted(set.intersection(*(set(seed) for seed in line.seeds))) if line.seeds else []
            by_round = [[scale * seed[r] for seed in line.seeds] for r in rounds]
            if len(line.seeds) > 1:
                ends = ([min(v) for v in by_round], [max(v) for v in by_round])
                axes.fill_between(rounds, *ends, color=colour(style), alpha=0.16, linewidth=0)
            mark = "o" if len(rounds) == 1 else ""
            means = [statistics.fmean(v) for v in by_round]
            axes.plot(rounds, means, color=colour(style), linestyle=dash, marker=mark, label=line.label)
            for seed in line.failed:
                values = [scale * v for v in seed.values()]
                axes.plot(list(seed), values, color=colour(style), linewidth=0.8, linestyle=":")
                axes.plot(list(seed)[-1:], values[-1:], color=colour(style), marker="x", linestyle="")
        axes.set_xlabel("round")
        axes.set_ylabel(f"{what}, %" if percent else what)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
        if lines:
            figure.legend(loc="outside upper left", ncols=columns, handlelength=2.4, columnspacing=1.0)
    return figure


def differences(gaps: Sequence[Difference], baseline: str) -> Figure:
    """Plot differences to a baseline, in points of accuracy, with their intervals."""
    with matplotlib.rc_context(STYLE | {"axes.grid.axis": "x"}):
        figure = Figure(figsize=(SIZE[0], 0.9 + 0.36 * len(gaps)), layout="constrained")
        axes = figure.subplots()
        axes.axvline(0, color="#5b6670", linewidth=0.9)
        for place, (_, over, style) in enumerate(gaps):
            if over.low is not None and over.high is not None:
                ends = [100 * over.low, 100 * over.high]
                axes.plot(ends, [place, place], color=colour(style), linewidth=2.2, solid_capstyle="butt")
            axes.plot([100 * over.mean], [place], color=colour(style), marker="o", markersize=6)
        axes.set_yticks(range(len(gaps)), [gap.label for gap in gaps])
        axes.set_ylim(len(gaps) - 0.4, -0.6)
        axes.set_xlabel(f"difference in accuracy to {baseline}, points")
    return figure


def svg(figure: Figure, name: str) -> str:
    """Render a figure as a self-contained SVG element whose ids are unique within a page."""
    content = _render(figure, "svg", name, inline=True).decode()
    content = content[content.index("<svg") :]
    content = re.sub(r"<metadata>.*?</metadata>", "", content, flags=re.DOTALL)
    content = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", content).replace("xlink:href", "href")
    content = re.sub(r'(<svg[^>]*?)\swidth="[^"]*"', r"\1", content, count=1)
    content = re.sub(r'(<svg[^>]*?)\sheight="[^"]*"', r"\1", content, count=1)
    content = re.sub(r'<g id="[^"]*"', "<g", content)  # no link leads to a group
    prefix = re.sub(r"\W+", "-", name)
    content = re.sub(r'\bid="', f'id="{prefix}-', content)
    content = re.sub(r"(url\(#|href=\"#)", rf"\g<1>{prefix}-", content)
    return re.sub(r"<[^>]+>", _shorter, re.sub(r"\s+", " ", content)).replace("> <", "><").strip()


def _shorter(tag: re.Match[str]) -> str:
    """Drop the font, which the page sets, and digits that are smaller than a pixel, from the tag of a figure."""
    text = re.sub(r"font-family: [^;\"]*;? ?| transform=\"rotate\(-0 [^\"]*\"", "", tag[0])
    return text if "base64" in text else re.sub(r"(\.\d\d)\d+", r"\1", text)


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write a figure as SVG, PDF and PNG."""
    paths = [folder / f"{name}.{kind}" for kind in KINDS]
    for path in paths:
        write_bytes(path, _render(figure, path.suffix[1:], name))
    return paths


def _render(figure: Figure, kind: str, name: str, inline: bool = False) -> bytes:
    """Render a figure reproducibly: no date, and ids that depend only on its name."""
    options = {"svg.hashsalt": name, "svg.fonttype": "none" if inline else "path"}
    stamp = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}[kind]
    content = BytesIO()
    with matplotlib.rc_context(STYLE | options):
        figure.savefig(content, format=kind, dpi=200, metadata=stamp, transparent=inline)
    return content.getvalue()


def _columns(labels: Sequence[str]) -> int:
    """Columns of the legend: a letter takes 5.4 points, a line sample 36."""
    room = 72 * SIZE[0] / (36 + 5.4 * max(map(len, labels), default=1))
    return max(1, min(4, len(labels), int(room)))
