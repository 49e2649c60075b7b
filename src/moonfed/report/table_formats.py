"""Tables as Markdown, LaTeX and CSV."""

import csv
from io import StringIO

from moonfed.report.blocks import Table

LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
LATEX |= {sign: f"\\{sign}" for sign in "&%$#_{}"}
LATEX |= {"±": r"$\pm$", "β": r"$\beta$", "μ": r"$\mu$", "·": r"$\cdot$", "\N{EN DASH}": "--", "\N{MINUS SIGN}": "$-$"}


def as_markdown(table: Table) -> str:
    """A table of GitHub's Markdown, with its caption above and its note below."""
    rule = ["---" if i < table.words else "---:" for i in range(len(table.columns))]
    lines = [_line([_plain(cell) for cell in row]) for row in (table.columns, *table.rows)]
    note = f"\n{_plain(table.note)}\n" if table.note else ""
    return "\n".join([_plain(table.caption), "", lines[0], _line(rule), *lines[1:], note])


def as_latex(table: Table) -> str:
    """A LaTeX table with the rules of booktabs."""
    kinds = "l" * table.words + "r" * (len(table.columns) - table.words)
    head, *body = [" & ".join(_latex(cell) for cell in row) + r" \\" for row in (table.columns, *table.rows)]
    note = [rf"\par\smallskip\footnotesize {_latex(table.note)}"] if table.note else []
    return "\n".join(
        [
            r"% \usepackage{booktabs}",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_latex(table.caption)}}}",
            rf"\begin{{tabular}}{{{kinds}}}",
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


def as_csv(table: Table) -> str:
    """Columns and rows, nothing else."""
    out = StringIO()
    csv.writer(out, lineterminator="\n").writerows([table.columns, *table.rows])
    return out.getvalue()


FORMS = {"md": as_markdown, "tex": as_latex, "csv": as_csv}


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _plain(cell: str) -> str:
    text = " ".join(cell.split())
    for sign in "\\|*_<>[]`":
        text = text.replace(sign, f"\\{sign}")
    return text


def _latex(cell: str) -> str:
    return "".join(LATEX.get(sign, sign) for sign in " ".join(cell.split()))
