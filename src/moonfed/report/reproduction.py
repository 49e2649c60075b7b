"""A reproduced table or figure for people: on the terminal, as Markdown, LaTeX and CSV."""

import csv
from collections.abc import Callable, Sequence
from io import StringIO
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table as Shown

from moonfed.report.blocks import Table
from moonfed.report.table_formats import as_latex

Found = dict[str, Any]
Grid = list[list[str]]
DIGITS = {"accuracy": 1, "rounds": 1, "first": 1, "speed-up": 1, "seconds": 1, "loss": 3, "separation": 3}


def print_result(found: Found) -> None:
    """Print the two tables of a recipe: the values, then the differences with their verdicts."""
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, 160)
    console.print(heading(found))
    for head, grid in grids(found):
        if not grid:
            continue
        table = Shown(box=box.SIMPLE_HEAD, pad_edge=False)
        for i, name in enumerate(head):
            text = name in ("", "difference", "verdict")
            table.add_column(name, justify="left" if text else "right", no_wrap=i < 2, overflow="fold")
        for row in grid:
            table.add_row(*row)
        console.print(table)
    for line in footnotes(found):
        console.print(line)


def heading(found: Found) -> str:
    """Name what was made again, and mark what is not as published."""
    source = found["source"]
    marks = [mark for mark, on in (("SMOKE", found["scale"] == "smoke"), ("ours", found["ours"])) if on]
    mark = f" [{', '.join(marks)}]" if marks else ""
    after = "after " if found["ours"] else ""
    return f"{found['id']}{mark}: {found['title']} ({after}{source['place']} of {source['document']})"


def grids(found: Found) -> list[tuple[list[str], Grid]]:
    """Put the two tables of a recipe under their headings; a smoke test's numbers are marked in the heading."""
    mark = " on digits (SMOKE)" if found["scale"] == "smoke" else ""
    lines = ["", "", "published", f"measured{mark}", "95 %", "last round", "trials"]
    differences = ["difference", "published", f"measured{mark}", "95 %", "trials", "verdict"]
    return [(lines, line_grid(found)), (differences, difference_grid(found))]


def line_grid(found: Found) -> Grid:
    """List the values, published and measured side by side."""
    grid: Grid = []
    before = None
    for line in found["lines"]:
        digits = DIGITS.get(line["measure"], 1)
        measured, last, over = line["measured"], line["last"], line["over_parties"]
        spread = over if over is not None else measured["std"] if measured else None
        grid.append(
            [
                line["column"] if line["column"] != before else "",
                line["row"],
                _with(line["published"], line["published_std"], 0 if line["measure"].startswith("split") else digits),
                line["state"] if measured is None else _with(measured["mean"], spread, digits),
                _ends(measured, digits),
                "" if last is None else _with(last["mean"], last["std"], digits),
                ("" if measured is None else str(measured["trials"])) + _failed(line),
            ]
        )
        before = line["column"]
    return grid


def difference_grid(found: Found) -> Grid:
    """List the differences with their intervals and verdicts."""
    grid: Grid = []
    for item in found["differences"]:
        measured, level, digits = item["measured"], item["level"], DIGITS.get(item["measure"], 1)
        published = f"within {level:g}" if level is not None else _signed(item["published"], digits)
        grid.append(
            [
                item["text"],
                published,
                "" if measured is None else _signed(measured["mean"], digits),
                _ends(measured, digits, "+"),
                "" if measured is None else str(measured["trials"]),
                item["verdict"],
            ]
        )
    return grid


def footnotes(found: Found) -> list[str]:
    """Say what the numbers are."""
    measures = {line["measure"] for line in found["lines"]}
    notes = [found["smoke"]] if found["smoke"] else []
    notes += [found["note"]] if found["note"] else []
    if "accuracy" in measures:
        notes.append(
            "accuracy: mean of the last ten rounds, the last round beside it, in per cent; never the best round"
        )
        notes.append("± is the standard deviation over the trials; solo's is over the parties, as published")
    if "rounds" in measures:
        notes.append(
            "rounds: the first with the accuracy of FedAvg's last round on the same seeds; FedAvg's own count is all "
            "its rounds, as published, its first crossing is beside it; a method that never gets there counts one more"
        )
    if found["differences"]:
        notes.append("difference: paired by split and seed; rounds, seconds and loss: fewer is ahead")
    if any(line["measured"] and line["measured"]["low"] is not None for line in found["lines"]):
        several = "splits, each the mean of its seeds" if len(found["splits"]) > 1 else "trials"
        notes.append(f"95 %: t-interval of the mean over the {several}")
    seeds, splits = (", ".join(map(str, found[name])) for name in ("seeds", "splits"))
    notes.append(f"training seeds {seeds}; split seed {splits}{_machines(found)}")
    return notes


def markdown(found: Found) -> str:
    """Write a recipe's result as Markdown."""
    parts = [f"# {heading(found)}", found["source"]["says"][:1].upper() + found["source"]["says"][1:] + "."]
    parts += [f"**{found['smoke']}**"] if found["smoke"] else []
    for head, grid in grids(found):
        if grid:
            rows = [head, ["---"] * len(head), *grid]
            parts.append("\n".join(f"| {' | '.join(row)} |" for row in rows))
    if found["beside"]:
        parts.append(_beside(found))
    if found["claims"]:
        parts.append("\n".join(f"> {claim['text']} ({claim['place']})" for claim in found["claims"]))
    parts.append("\n".join(f"- {note}" for note in footnotes(found)))
    return "\n\n".join(parts) + "\n"


def _beside(found: Found) -> str:
    """Set printed curves and the measured ones of the same rows beside each other."""
    rounds = found["beside"]["rounds"]
    curves = {f"{line['row']} {line['column']}": line["curve"] for line in found["lines"]}
    head = ["accuracy after round", *map(str, rounds)]
    rows = [head, ["---"] * len(head)]
    for name, values in found["beside"]["curves"].items():
        ours = curves.get(name, [])
        rows.append(
            [f"{name}, {found['scale']}, here", *(f"{ours[r - 1]:.1f}" if r <= len(ours) else "" for r in rounds)]
        )
        rows.append([f"{name}, published", *(f"{value:.1f}" for value in values)])
    return f"Beside it {found['beside']['source']}:\n\n" + "\n".join(f"| {' | '.join(row)} |" for row in rows)


def tables(found: Found) -> list[Table]:
    """Make the two tables of a recipe; each row names its column, since it may stand alone."""
    names = (("values", "published and measured", 2), ("differences", "differences and verdicts", 1))
    made: list[Table] = []
    for (name, caption, words), (head, grid) in zip(names, grids(found), strict=True):
        rows: list[list[str]] = []
        for first, *rest in grid:
            rows.append([first or rows[-1][0], *rest])
        if rows:
            columns = [word or known for word, known in zip(head, ("on", "row", *head[2:]), strict=True)]
            mark = " [SMOKE]" if found["scale"] == "smoke" else ""
            made.append(Table(f"{found['id']}-{name}", f"{found['id']}{mark}: {caption}", columns, rows, words))
    return made


def latex(found: Found) -> str:
    """Write a recipe's result as LaTeX tables."""
    notes = [f"% {note}" for note in footnotes(found)]
    return "\n".join([f"% {heading(found)}", *notes, *(as_latex(table) for table in tables(found))]) + "\n"


def lines_csv(found: Found) -> str:
    """Write every trial's value of every line as CSV."""
    names = ["id", "scale", "column", "row", "measure", "published", "published_std", "split", "seed", "value", "last"]
    rows = [
        [found["id"], found["scale"], *(line[k] for k in ("column", "row", "measure", "published", "published_std"))]
        + [trial.get(k) for k in ("split", "seed", "value", "last")]
        for line in found["lines"]
        for trial in line["trials"] or [{}]
    ]
    return _csv(names, rows)


def differences_csv(found: Found) -> str:
    """Write the differences and their verdicts as CSV."""
    rows = [
        [found["id"], found["scale"], item["text"], item["published"]]
        + [(item["measured"] or {}).get(k) for k in ("mean", "low", "high", "n")]
        + [item["verdict"]]
        for item in found["differences"]
    ]
    return _csv(["id", "scale", "difference", "published", "mean", "low", "high", "n", "verdict"], rows)


def curves_csv(found: Found) -> str:
    """Write the mean curves of a recipe as CSV, one line a round."""
    rows = [
        [found["id"], found["scale"], line["column"], line["row"], round, value]
        for line in found["lines"]
        for round, value in enumerate(line["curve"], 1)
    ]
    return _csv(["id", "scale", "column", "row", "round", "mean"], rows)


def print_list(found: Sequence[Found]) -> None:
    """Print what can be made again, what it needs and about how long it takes."""
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, 160)
    table = Shown(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("id", "what", "data (+ here, - not)", "trials", "left", "rounds", "about"):
        numbers = name in ("trials", "left", "about")
        table.add_column(name, justify="right" if numbers else "left", no_wrap=name in ("id", "about"), overflow="fold")
    for item in found:
        data = ", ".join(f"{'+' if here else '-'}{name}" for name, here in item["here"].items())
        marks = " [SMOKE]" if item["scale"] == "smoke" else " [ours]" if item["ours"] else ""
        rounds = ", ".join(map(str, item["rounds"]))
        counts = str(item["trials"]), str(item["trials_left"])
        about = duration(item["seconds"]) if item["trials_left"] else "" if item["trials"] else "no training"
        table.add_row(item["id"], item["title"] + marks, data, *counts, rounds, about)
    console.print(table)
    rates = {(d, r["seconds"], r["source"]) for item in found for d, r in item["rates"].items()}
    for dataset, seconds, source in sorted(rates):
        console.print(f"{dataset}: {1e6 * seconds:,.0f} us a party-step, from {source}")
    console.print("about: each as if run alone; runs that several share are made once and reused")


def duration(seconds: float) -> str:
    """Say a duration in the unit that fits."""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.0f} s"


FORMS: dict[str, Callable[[Found], str]] = {
    "table.md": markdown,
    "table.tex": latex,
    "lines.csv": lines_csv,
    "differences.csv": differences_csv,
    "curves.csv": curves_csv,
}


def _csv(names: list[str], rows: Sequence[Sequence[Any]]) -> str:
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows([names, *rows])
    return text.getvalue()


def _with(value: float | None, spread: float | None, digits: int) -> str:
    if value is None:
        return ""
    return f"{value:.{digits}f}" + ("" if spread is None else f" ± {spread:.{digits}f}")


def _signed(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:+.{digits}f}"


def _ends(measured: Found | None, digits: int, sign: str = "") -> str:
    if measured is None or measured["low"] is None:
        return ""
    return f"{measured['low']:{sign}.{digits}f} to {measured['high']:{sign}.{digits}f}"


def _failed(line: Found) -> str:
    return f" ({line['failed']} failed)" if line["failed"] else ""


def _machines(found: Found) -> str:
    """Name on what the trials were run, each kind of machine once."""
    said = {
        f"{item['machine'].get('gpu') or str(item['machine'].get('cores')) + ' CPU cores'}, "
        f"precision {item['precision']}, torch {item['versions'].get('torch')}, "
        f"moonfed {item['versions'].get('moonfed')}"
        for item in found["circumstances"]
    }
    return f"; {'; '.join(sorted(said))}" if said else ""
