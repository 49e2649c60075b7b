"""The page of what was made again: published and measured side by side, with intervals, verdicts and curves."""

from collections.abc import Callable
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from moonfed.core.files import read_tensors
from moonfed.report.blocks import Block, Folded, Paragraph, Picture, Pictures, Section
from moonfed.report.embedding import embed, panel
from moonfed.report.figures import SIZE, STYLE, Line, colour, curves
from moonfed.report.heatmap import heatmap
from moonfed.report.reproduction import Found, footnotes, heading, tables

ROWS = 500  # test rows of a t-SNE
CURVES = {"accuracy": "test accuracy, %", "loss": "training loss"}
TONES = {"holds": 2, "holds, smaller": 5, "contradicted": 1, "not shown": 6, "not run": 6}


def sections_of(found: Found, out: Path, say: Callable[[str], None] = lambda line: None) -> list[Section]:
    """Make the chapter of one recipe; out is the folder in which what it names lies."""
    id = found["id"]
    say(f"drawing {id}")
    blocks: list[Block] = (
        [Paragraph(found["smoke"][:1].upper() + found["smoke"][1:] + ".", True)] if found["smoke"] else []
    )
    says = found["source"]["says"]
    blocks.append(Paragraph(f"{says[:1].upper()}{says[1:]}."))
    blocks += tables(found)
    chapter = [Section(heading(found), blocks)]
    pictures = [*_verdicts(found), *_curves(found), *_splits(found)]
    if pictures:
        chapter.append(Section("Drawn", [Pictures(pictures)], 3))
    panels = _features(found, out)
    if panels:
        words = f"The features of {ROWS} test rows, placed in the plane by t-SNE; axes have no meaning."
        chapter.append(Section("What the models see", [Paragraph(words), Pictures(panels, small=True)], 3))
    notes: list[Block] = [Paragraph(note[:1].upper() + note[1:] + ".") for note in footnotes(found)]
    notes += [Paragraph(f"{claim['place']}: {claim['text']}") for claim in found["claims"]]
    return [*chapter, Section("What the numbers are", [Folded("Notes, claims and circumstances", notes)], 3)]


def _verdicts(found: Found) -> list[Picture]:
    """Draw each difference with its interval, and the published one beside it, measure by measure."""
    drawn: list[Picture] = []
    for measure in dict.fromkeys(item["measure"] for item in found["differences"]):
        items = [i for i in found["differences"] if i["measure"] == measure and i["measured"] is not None]
        if not items:
            continue
        with matplotlib.rc_context(STYLE | {"axes.grid.axis": "x"}):
            figure = Figure(figsize=(SIZE[0] * 1.25, 0.9 + 0.26 * len(items)), layout="constrained")
            axes = figure.subplots()
            axes.axvline(0, color="#5b6670", linewidth=0.9)
            for place, item in enumerate(items):
                measured, tone = item["measured"], colour(TONES[item["verdict"].removeprefix("smoke: ")])
                if measured["low"] is not None:
                    axes.plot([measured["low"], measured["high"]], [place, place], color=tone, linewidth=2)
                axes.plot([measured["mean"]], [place], color=tone, marker="o", markersize=5)
                if item["published"] is not None:
                    axes.plot([item["published"]], [place], color="#1d2733", marker="D", markersize=5, fillstyle="none")
            axes.set_yticks(range(len(items)), [item["text"] for item in items], fontsize=7.5)
            axes.set_ylim(len(items) - 0.4, -0.6)
            axes.set_xlabel("points of accuracy" if measure == "accuracy" else str(measure))
        caption = "Measured difference with its 95 % interval; a diamond is the published one."
        alt = f"{len(items)} differences of {measure} with their intervals; the table above has the numbers."
        drawn.append(Picture(f"{found['id']}-{measure}-differences".replace(" ", "-"), figure, alt, caption))
    return drawn


def _curves(found: Found) -> list[Picture]:
    """Draw the curves of each column, a line a row."""
    drawn: list[Picture] = []
    for measure, what in CURVES.items():
        lines = [line for line in found["lines"] if line["measure"] == measure and line["curve"]]
        for column in dict.fromkeys(line["column"] for line in lines):
            mine = [line for line in lines if line["column"] == column]
            shown = [
                Line(line["row"], [dict(enumerate(trial["curve"], 1)) for trial in line["trials"]]) for line in mine
            ]
            name = f"{found['id']}-{measure}-{column}".replace(" ", "-").replace(",", "").replace("=", "-")
            caption = f"{column}: means over the trials, bands from the lowest to the highest."
            alt = f"{what} by round on {column} for {', '.join(line['row'] for line in mine)}."
            drawn.append(Picture(name, curves(shown, what), alt, caption))
    return drawn


def _splits(found: Found) -> list[Picture]:
    """Draw who holds what, where a recipe is about the split."""
    drawn: list[Picture] = []
    for line in found["lines"]:
        for split in line["splits"] if line["measure"] == "split std" else ():
            name = f"{found['id']}-{line['column']}-split{split['seed']}"
            alt = f"Rows of each class at each party, {line['column']}, split seed {split['seed']}."
            drawn.append(Picture(name, heatmap(split, SIZE[0]), alt, f"{line['column']}; darker is more."))
    return drawn


def _features(found: Found, out: Path) -> list[Picture]:
    """Draw the features of each model's first trial."""
    drawn: list[Picture] = []
    for line in found["lines"]:
        for trial in line["trials"][:1] if line["measure"] == "separation" else ():
            held = read_tensors(out / trial["features"])[0]
            figure = panel(embed(held["features"][:ROWS]), held["labels"][:ROWS], line["row"])
            name = f"{found['id']}-features-{len(drawn) + 1}"
            drawn.append(Picture(name, figure, f"t-SNE of the features of {line['row']}, by class.", line["row"]))
    return drawn
