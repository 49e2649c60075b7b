"""A reproduced table or figure as tables, Markdown, LaTeX and CSV."""

from collections.abc import Callable
from itertools import groupby
from typing import Any

from moonfed.core.wording import unsigned_zero
from moonfed.report.blocks import Table
from moonfed.report.table_formats import as_latex, as_markdown, csv_text

Result = dict[str, Any]
DIGITS = {"loss": 3, "separation": 3}  # decimals shown; one otherwise
PERCENT = {"accuracy"}  # measures kept as fractions and shown in per cent
FINAL = {"accuracy": "final accuracy", "loss": "final loss"}


def heading(result: Result) -> str:
    """Title of a recipe; marks smoke tests and our own variants."""
    source = result["source"]
    marks = [mark for mark, on in (("SMOKE", result["scale"] == "smoke"), ("ours", result["ours"])) if on]
    mark = f" [{', '.join(marks)}]" if marks else ""
    after = "after " if result["ours"] else ""
    return f"{result['id']}{mark}: {result['title']} ({after}{source['place']} of {source['document']})"


def tables(result: Result) -> list[Table]:
    """The tables of a recipe: values, then differences with their verdicts, each if it has rows."""
    mark = " [SMOKE]" if result["scale"] == "smoke" else ""
    heads = ["published", "measured"]
    if mark:  # on the digits, beside what was published of another data set
        heads = [f"published on {', '.join(result['datasets'])}", "measured on digits (SMOKE)"]
    made = [_values(result, mark, heads), _differences(result, mark, heads)]
    return [table for table in made if table.rows]


def _values(result: Result, mark: str, heads: list[str]) -> Table:
    measures = [line["measure"] for line in result["lines"] if line["final"] is not None]
    final = FINAL.get(measures[0], "final") if measures else None
    columns = ["on", "row", *heads, "95 %", *([final] if final else []), "trials"]
    rows = [_value_row(line, final is not None) for line in result["lines"]]
    align = "ll" + "r" * (len(columns) - 2)
    caption = f"{result['id']}{mark}: published and measured"
    grouped = len([first for first, _ in groupby(row[0] for row in rows)]) == len({row[0] for row in rows})
    return Table(f"{result['id']}-values", caption, columns, rows, align, grouped=grouped)


def _value_row(line: Result, with_final: bool) -> list[str]:
    measure, over = line["measure"], line["measured"]
    spread = line["over_parties"] if line["over_parties"] is not None else over["std"] if over else None
    final = line["final"]
    row = [
        line["column"],
        line["row"],
        _number(line["published"], line["published_std"], measure, 0 if measure.startswith("split") else None),
        line["state"] if over is None else _number(over["mean"], spread, measure),
        _ends(over, measure),
    ]
    row += ["" if final is None else _number(final["mean"], final["std"], measure)] if with_final else []
    failed = f" ({line['failed']} failed)" if line["failed"] else ""
    return [*row, ("" if over is None else str(over["trials"])) + failed]


def _differences(result: Result, mark: str, heads: list[str]) -> Table:
    columns = ["difference", *heads, "95 %", "trials", "verdict"]
    rows = [_difference_row(item) for item in result["differences"]]
    caption = f"{result['id']}{mark}: differences and verdicts"
    return Table(f"{result['id']}-differences", caption, columns, rows, "lrrrrl")


def _difference_row(item: Result) -> list[str]:
    over, level, measure = item["measured"], item["level"], item["measure"]
    within = "" if level is None else f"within {display_factor(measure) * level:g}"
    return [
        item["text"],
        within or ("" if item["published"] is None else _number(item["published"], None, measure, sign="+")),
        "" if over is None else _number(over["mean"], None, measure, sign="+"),
        _ends(over, measure, "+"),
        "" if over is None else str(over["trials"]),
        item["verdict"],
    ]


def footnotes(result: Result) -> list[str]:
    """Definitions of the numbers, and the circumstances of the runs."""
    measures = {line["measure"] for line in result["lines"]}
    notes = [result["smoke"]] if result["smoke"] else []
    notes += [result["note"]] if result["note"] else []
    if "accuracy" in measures:
        notes.append(
            "accuracy: mean of the last quarter of the rounds, at most ten (ten of 100), in per cent; final accuracy: "
            "the last round alone; the best round is never selected"
        )
        notes.append("± is the standard deviation over the trials; for solo over the parties, as published")
    if "rounds" in measures:
        notes.append(
            "rounds: the first with FedAvg's final accuracy on the same seeds; FedAvg's own count is all its rounds, "
            "as published, and its first crossing is a row of its own; a method that never gets there counts one more"
        )
    if result["differences"]:
        notes.append("difference: paired by split and seed; for rounds, seconds and loss, fewer is better")
    notes += _interval_notes(result)
    seeds, splits = (", ".join(map(str, result[name])) for name in ("seeds", "splits"))
    notes.append(f"training seeds {seeds}; split seed {splits}{_machines(result)}")
    return notes


def _interval_notes(result: Result) -> list[str]:
    """What the column of intervals holds, and why cells of it are empty."""
    measured = [line for line in result["lines"] if line["measured"]]
    unit = "splits" if len(result["splits"]) > 1 else "trials"
    mean = ", each the mean of its seeds" if unit == "splits" else ""
    notes: list[str] = []
    if any(line["measured"]["low"] is not None for line in measured):
        notes.append(f"95 %: t-interval of the mean over the {unit}{mean}; of an accuracy, cut to 0 to 100 %")
    if any(line["measured"]["low"] is None and line["measure"] == "accuracy" for line in measured):
        notes.append(f"95 %: an accuracy has no interval from fewer than three {unit}, nor from equal ones")
    return notes


def markdown(result: Result) -> str:
    """Render a recipe's result as Markdown."""
    says = result["source"]["says"]
    parts = [f"# {heading(result)}", f"{says[:1].upper()}{says[1:]}."]
    parts += [f"**{result['smoke']}**"] if result["smoke"] else []
    parts += [as_markdown(table).strip() for table in tables(result)]
    if result["beside"]:
        parts.append(as_markdown(_reference_curves(result)).strip())
    if result["claims"]:
        parts.append("\n".join(f"> {claim['text']} ({claim['place']})" for claim in result["claims"]))
    parts.append("\n".join(f"- {note}" for note in footnotes(result)))
    return "\n\n".join(parts) + "\n"


def _reference_curves(result: Result) -> Table:
    """Published curves beside the measured ones of the same rows."""
    rounds = result["beside"]["rounds"]
    measured = {f"{line['row']} {line['column']}": line["curve"] for line in result["lines"]}
    rows: list[list[str]] = []
    for name, values in result["beside"]["curves"].items():
        curve = measured.get(name, [])
        rows.append(
            [
                f"{name}, {result['scale']}, here",
                *(f"{100 * curve[r - 1]:.1f}" if r <= len(curve) else "" for r in rounds),
            ]
        )
        rows.append([f"{name}, published", *(f"{100 * value:.1f}" for value in values)])
    caption = f"For comparison: {result['beside']['source']}"
    return Table(f"{result['id']}-reference", caption, ["accuracy after round, %", *map(str, rounds)], rows)


def latex(result: Result) -> str:
    """Render a recipe's result as LaTeX tables."""
    notes = [f"% {note}" for note in footnotes(result)]
    return "\n".join([f"% {heading(result)}", *notes, *(as_latex(table) for table in tables(result))]) + "\n"


def lines_csv(result: Result) -> str:
    """Every trial's value of every line as CSV; accuracies are fractions."""
    names = ["id", "scale", "column", "row", "measure", "published", "published_std", "split", "seed", "value", "final"]
    rows = [
        [result["id"], result["scale"], *(line[k] for k in ("column", "row", "measure", "published", "published_std"))]
        + [trial.get(k) for k in ("split", "seed", "value", "final")]
        for line in result["lines"]
        for trial in line["trials"] or [{}]
    ]
    return csv_text(names, rows)


def differences_csv(result: Result) -> str:
    """The differences and their verdicts as CSV; accuracies are fractions."""
    rows = [
        [result["id"], result["scale"], item["text"], item["published"]]
        + [(item["measured"] or {}).get(k) for k in ("mean", "low", "high", "n")]
        + [item["verdict"]]
        for item in result["differences"]
    ]
    return csv_text(["id", "scale", "difference", "published", "mean", "low", "high", "n", "verdict"], rows)


def curves_csv(result: Result) -> str:
    """The mean curves of a recipe as CSV, one line per round; accuracies are fractions."""
    rows = [
        [result["id"], result["scale"], line["column"], line["row"], round, value]
        for line in result["lines"]
        for round, value in enumerate(line["curve"], 1)
    ]
    return csv_text(["id", "scale", "column", "row", "round", "mean"], rows)


RESULT_FILES: dict[str, Callable[[Result], str]] = {
    "table.md": markdown,
    "table.tex": latex,
    "lines.csv": lines_csv,
    "differences.csv": differences_csv,
    "curves.csv": curves_csv,
}


def display_factor(measure: str) -> float:
    """The factor with which values of a measure are shown: accuracies are fractions, shown in per cent."""
    return 100.0 if measure in PERCENT else 1.0


def _number(value: float | None, spread: float | None, measure: str, digits: int | None = None, sign: str = "") -> str:
    if value is None:
        return ""
    digits, factor = DIGITS.get(measure, 1) if digits is None else digits, display_factor(measure)
    shown = f"{unsigned_zero(factor * value, digits):{sign}.{digits}f}"
    return shown if spread is None else f"{shown} ± {factor * spread:.{digits}f}"


def _ends(over: Result | None, measure: str, sign: str = "") -> str:
    if over is None or over["low"] is None:
        return ""
    return " to ".join(_number(over[end], None, measure, sign=sign) for end in ("low", "high"))


def _machines(result: Result) -> str:
    """The machines of the trials, each kind once."""
    machines = {
        f"{item['machine'].get('gpu') or str(item['machine'].get('cores')) + ' CPU cores'}, "
        f"precision {item['precision']}, torch {item['versions'].get('torch')}, "
        f"moonfed {item['versions'].get('moonfed')}"
        for item in result["circumstances"]
    }
    return f"; {'; '.join(sorted(machines))}" if machines else ""
