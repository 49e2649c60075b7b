"""Renders tables as Markdown, LaTeX, HTML and CSV."""

import csv
from collections.abc import Sequence
from html import escape
from io import StringIO
from typing import Any

from moonfed.report.blocks import Table

LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
LATEX |= {sign: f"\\{sign}" for sign in "&%$#_{}"}
LATEX |= {"±": r"$\pm$", "β": r"$\beta$", "μ": r"$\mu$", "·": r"$\cdot$", "\N{EN DASH}": "--", "\N{MINUS SIGN}": "$-$"}


def as_markdown(table: Table) -> str:
    """Render a GitHub Markdown table with its caption above and its note below."""
    rule = ["---" if side == "l" else "---:" for side in table.alignment]
    lines = [_markdown_row([_markdown(cell) for cell in row]) for row in (table.columns, *table.rows)]
    caption = [_markdown(table.caption), ""] if table.caption else []
    note = f"\n{_markdown(table.note)}\n" if table.note else ""
    return "\n".join([*caption, lines[0], _markdown_row(rule), *lines[1:], note])


def as_latex(table: Table) -> str:
    """Render a LaTeX table with the rules of booktabs."""
    head, *body = [" & ".join(_latex(cell) for cell in row) + r" \\" for row in (table.columns, *table.rows)]
    note = [rf"\par\smallskip\footnotesize {_latex(table.note)}"] if table.note else []
    return "\n".join(
        [
            r"% \usepackage{booktabs}",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_latex(table.caption)}}}",
            rf"\begin{{tabular}}{{{table.alignment}}}",
            r"\toprule",
            head,
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            *note,
            r"\end{table}",
            "",
        ]
    )


def as_html(table: Table) -> str:
    """Render a plain HTML table without styles or classes, for a notebook; all text is escaped."""
    sides = ["left" if side == "l" else "right" for side in table.alignment]

    def row(tag: str, cells: Sequence[str]) -> str:
        pairs = zip(sides, cells, strict=True)
        found = [f'<{tag} style="text-align: {side}">{escape(cell)}</{tag}>' for side, cell in pairs]
        return f"<tr>{''.join(found)}</tr>"

    caption = f"<caption>{escape(table.caption)}</caption>" if table.caption else ""
    body = "".join(row("td", cells) for cells in table.rows)
    note = f"<p>{escape(table.note)}</p>" if table.note else ""
    return f"<table>{caption}<thead>{row('th', table.columns)}</thead><tbody>{body}</tbody></table>{note}"


def as_csv(table: Table) -> str:
    """Render columns and rows, without caption and note."""
    return csv_text(table.columns, table.rows)


def csv_text(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Write a header and rows of values as CSV."""
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows([columns, *rows])
    return text.getvalue()


TABLE_FORMATS = {"md": as_markdown, "tex": as_latex, "csv": as_csv}


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown(cell: str) -> str:
    text = " ".join(cell.split())
    for sign in "\\|*_<>[]`":
        text = text.replace(sign, f"\\{sign}")
    return text


def _latex(cell: str) -> str:
    return "".join(LATEX.get(sign, sign) for sign in " ".join(cell.split()))
