"""The page of reproduced tables and figures: published and measured values, intervals, verdicts and curves."""

import logging
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from moonfed.core.files import read_tensors
from moonfed.core.wording import counted
from moonfed.data.catalog.image_sets import CLASS_NAMES
from moonfed.report.blocks import Block, Details, Paragraph, Plot, PlotGrid, Section
from moonfed.report.embedding import embed, panel
from moonfed.report.figures import SIZE, STYLE, Curve, colour, curves
from moonfed.report.heatmap import heatmap
from moonfed.report.reproduction import Result, display_factor, footnotes, heading, tables

logger = logging.getLogger(__name__)

TSNE_ROWS = 500  # test rows of a t-SNE
CURVES = {"accuracy": "test accuracy", "loss": "training loss"}
VERDICT_COLOURS = {"holds": 2, "holds, smaller": 5, "contradicted": 1, "not shown": 6, "not run": 6}


def sections_of(result: Result, out: Path) -> list[Section]:
    """Make the chapter of one recipe; file names in the result are relative to `out`."""
    logger.info("plotting %s", result["id"])
    blocks: list[Block] = [Paragraph(_sentence(result["smoke"]), True)] if result["smoke"] else []
    blocks.append(Paragraph(_sentence(result["source"]["says"])))
    blocks += tables(result)
    chapter = [Section(heading(result), blocks, short=result["id"])]
    plots = [*_verdict_plots(result), *_curve_plots(result), *_split_plots(result)]
    if plots:
        chapter.append(Section("Figures", [PlotGrid(plots)], 3))
    panels = _feature_plots(result, out)
    if panels:
        text = f"The features of {TSNE_ROWS} test rows, projected to the plane by t-SNE; axes have no meaning."
        chapter.append(Section("Features of the models", [Paragraph(text), PlotGrid(panels, small=True)], 3))
    notes: list[Block] = [Paragraph(_sentence(note)) for note in footnotes(result)]
    notes += [Paragraph(f"{claim['place']}: {claim['text']}") for claim in result["claims"]]
    return [*chapter, Section("Definitions", [Details("Notes, claims and circumstances", notes)], 3)]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _verdict_plots(result: Result) -> list[Plot]:
    """Plot each difference with its interval beside the published one, one plot per measure."""
    plots: list[Plot] = []
    for measure in dict.fromkeys(item["measure"] for item in result["differences"]):
        items = [i for i in result["differences"] if i["measure"] == measure and i["measured"] is not None]
        if not items:
            continue
        caption = "Measured difference with its 95 % interval; a diamond is the published one."
        number = counted(len(items), "difference")
        alt = f"{number} of {measure}, each with its interval; the table above has the numbers."
        name = f"{result['id']}-{measure}-differences".replace(" ", "-")
        plots.append(Plot(name, _difference_figure(items, measure), alt, caption))
    return plots


def _difference_figure(items: list[Result], measure: str) -> Figure:
    factor = display_factor(measure)
    with matplotlib.rc_context(STYLE | {"axes.grid.axis": "x"}):
        figure = Figure(figsize=(SIZE[0] * 1.25, 0.9 + 0.26 * len(items)), layout="constrained")
        axes = figure.subplots()
        axes.axvline(0, color="#5b6670", linewidth=0.9)
        for place, item in enumerate(items):
            over, tone = item["measured"], colour(VERDICT_COLOURS[item["verdict"].removeprefix("smoke: ")])
            if over["low"] is not None:
                axes.plot([factor * over["low"], factor * over["high"]], [place, place], color=tone, linewidth=2)
            axes.plot([factor * over["mean"]], [place], color=tone, marker="o", markersize=5)
            if item["published"] is not None:
                style = {"color": "#1d2733", "marker": "D", "markersize": 5, "fillstyle": "none"}
                axes.plot([factor * item["published"]], [place], **style)
        axes.set_yticks(range(len(items)), [item["text"] for item in items], fontsize=7.5)
        axes.set_ylim(len(items) - 0.4, -0.6)
        axes.set_xlabel("points of accuracy" if measure == "accuracy" else measure)
    return figure


def _curve_plots(result: Result) -> list[Plot]:
    """Plot the curves of each column, one line per row."""
    plots: list[Plot] = []
    for measure, what in CURVES.items():
        lines = [line for line in result["lines"] if line["measure"] == measure and line["curve"]]
        for column in dict.fromkeys(line["column"] for line in lines):
            members = [line for line in lines if line["column"] == column]
            found = [
                Curve(line["row"], [dict(enumerate(trial["curve"], 1)) for trial in line["trials"]]) for line in members
            ]
            name = f"{result['id']}-{measure}-{column}".replace(" ", "-").replace(",", "").replace("=", "-")
            caption = f"{column}: means over the trials, bands from the lowest to the highest."
            alt = f"{what} by round on {column} for {', '.join(line['row'] for line in members)}."
            plots.append(Plot(name, curves(found, what, percent=measure == "accuracy"), alt, caption))
    return plots


def _split_plots(result: Result) -> list[Plot]:
    """Plot the split between parties, where a recipe is about it."""
    plots: list[Plot] = []
    for line in result["lines"]:
        for split in line["splits"] if line["measure"] == "split std" else ():
            name = f"{result['id']}-{line['column']}-split{split['seed']}"
            alt = f"Rows of each class at each party, {line['column']}, split seed {split['seed']}."
            plots.append(Plot(name, heatmap(split, SIZE[0]), alt, f"{line['column']}; darker is more."))
    return plots


def _feature_plots(result: Result, out: Path) -> list[Plot]:
    """Plot the features of each model's first trial."""
    plots: list[Plot] = []
    for line in result["lines"]:
        for trial in line["trials"][:1] if line["measure"] == "separation" else ():
            names = CLASS_NAMES.get(line["dataset"], ())
            tensors = read_tensors(out / trial["features"])[0]
            figure = panel(embed(tensors["features"][:TSNE_ROWS]), tensors["labels"][:TSNE_ROWS], line["row"], names)
            name = f"{result['id']}-features-{len(plots) + 1}"
            plots.append(Plot(name, figure, f"t-SNE of the features of {line['row']}, by class.", line["row"]))
    return plots
