"""Renders a report as one self-contained HTML file: no script, font or image is loaded."""

import math
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

from moonfed.core.files import write_bytes
from moonfed.report.blocks import Block, Details, Paragraph, Plot, PlotGrid, Section, Table
from moonfed.report.figures import svg
from moonfed.report.style import SHADES, STYLE

TALL_ROWS = 40  # beyond which a table scrolls in a box that is lower than the screen
WIDE_NAME = 12  # letters, beyond which the name of a row keeps some width on a phone
WIDE_CELL = 40  # letters, beyond which a cell may have several lines
LONG_WORD = 20  # letters, beyond which a word may be broken anywhere


def write_page(title: str, sections: Sequence[Section], path: Path, introduction: str = "", footer: str = "") -> None:
    """Write sections as one self-contained page."""
    write_bytes(path, page(title, sections, introduction, footer).encode())


def page(title: str, sections: Sequence[Section], introduction: str = "", footer: str = "") -> str:
    """Make the page; all text is escaped."""
    names = [f"s{place}" for place in range(1, len(sections) + 1)]
    chapters = [(name, s) for name, s in zip(names, sections, strict=True) if s.depth == 2]
    items = "".join(f'<li><a href="#{name}">{escape(s.short or s.title)}</a></li>' for name, s in chapters)
    contents = f'<nav aria-label="Contents"><ul>{items}</ul></nav>' if len(chapters) > 1 else ""
    body = "\n".join(_section(section, name) for name, section in zip(names, sections, strict=True))
    top = f'<p class="intro">{escape(introduction)}</p>' if introduction else ""
    bottom = f"<footer><p>{escape(footer)}</p></footer>" if footer else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>
{STYLE}</style>
</head>
<body>
<main>
<header><h1>{escape(title)}</h1>{top}</header>
{contents}
{body}
{bottom}
</main>
</body>
</html>
"""


def _section(section: Section, name: str = "") -> str:
    """Render a section; one within another block has no name to link to."""
    blocks = "\n".join(_block(block) for block in section.blocks)
    level = f"h{section.depth}"
    if not name:
        return f"<section>\n<{level}>{escape(section.title)}</{level}>\n{blocks}\n</section>"
    heading = f'<{level} id="{name}">{escape(section.title)}</{level}>'
    return f'<section aria-labelledby="{name}">\n{heading}\n{blocks}\n</section>'


def _block(block: Block) -> str:
    match block:
        case Paragraph(text, warning):
            return f'<p class="warning" role="note">{escape(text)}</p>' if warning else f"<p>{escape(text)}</p>"
        case Table():
            return _table(block)
        case PlotGrid(plots, small):
            kind = "panels" if small else "plots"
            return f'<div class="{kind}">\n' + "\n".join(_plot(plot) for plot in plots) + "\n</div>"
        case Details(summary, blocks, anchor):
            inner = "\n".join(_block(part) for part in blocks)
            target = f'<div id="{escape(anchor)}">\n{inner}\n</div>' if anchor else inner
            return f"<details>\n<summary>{escape(summary)}</summary>\n{target}\n</details>"
        case Section():
            return _section(block)


def _plot(plot: Plot) -> str:
    label = f'<svg role="img" aria-label="{escape(plot.alt)}"'
    image = svg(plot.figure, plot.name).replace("<svg", label, 1)
    return f"<figure>{image}<figcaption>{escape(plot.caption)}</figcaption></figure>"


def _table(table: Table) -> str:
    """Render a table in a box of its own, which scrolls sideways on a narrow screen while the first column stays."""
    first = 1 if table.grouped else 0  # the column that names a row
    head = "".join(
        f'<th scope="col"{_kind(table, i)}>{escape(name)}</th>' for i, name in enumerate(table.columns) if i >= first
    )
    rows: list[str] = []
    for place, row in enumerate(table.rows):
        if table.grouped and (place == 0 or row[0] != table.rows[place - 1][0]):
            rows.append(_group_row(table, row[0]))
        rows.append(_row(table, place, first))
    tall = " tall" if len(rows) > TALL_ROWS else ""
    hint = f" ({len(table.rows)} rows: scroll the table)" if tall else ""
    caption = f"<caption><span>{escape(table.caption + hint)}</span></caption>" if table.caption else ""
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return (
        f'<div class="table"><div class="scroll{tall}" tabindex="0">'
        f"<table>{caption}\n<thead><tr>{head}</tr></thead>\n<tbody>\n"
        + "\n".join(rows)
        + f"\n</tbody></table></div>{note}</div>"
    )


def _group_row(table: Table, name: str) -> str:
    link = table.links.get(name)
    text = f'<a href="#{escape(link)}">{escape(name)}</a>' if link else escape(name)
    return f'<tr class="group"><th colspan="{len(table.columns) - 1}" scope="colgroup"><span>{text}</span></th></tr>'


def _row(table: Table, place: int, first: int) -> str:
    cells: list[str] = []
    for i, cell in list(enumerate(table.rows[place]))[first:]:
        long = any(len(word) > LONG_WORD for word in cell.split())
        text = re.sub(r"([:,/=+_-])", r"\1<wbr>", escape(cell)) if long else escape(cell)
        if i == first:
            dot = f'<i style="background:{table.colours[place]}" aria-hidden="true"></i>' if table.colours else ""
            text = f'<span class="dotted">{dot}<span>{text}</span></span>' if dot else text
            cells.append(f'<th scope="row"{_kind(table, i, long, len(cell) > WIDE_NAME)}>{text}</th>')
        else:
            shade = table.shades[place][i - first - 1] if table.shades else 0.0
            cells.append(f"<td{_kind(table, i, long, len(cell) > WIDE_CELL, shade)}>{text}</td>")
    bold = ' class="best"' if place in table.bold else ""
    return f"<tr{bold}>{''.join(cells)}</tr>"


def _kind(table: Table, column: int, long: bool = False, wide: bool = False, shade: float = 0.0) -> str:
    words = ["number"] if table.alignment[column] == "r" else ["long"] if long else ["wide"] if wide else []
    words += [f"shade{math.ceil(SHADES * min(shade, 1.0))}"] if shade > 0 else []
    return f' class="{" ".join(words)}"' if words else ""
