"""Renders a report as one self-contained HTML file: no script, font or image is loaded."""

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

from moonfed.core.files import write_bytes
from moonfed.report.blocks import Block, Details, Paragraph, Plot, PlotGrid, Section, Table
from moonfed.report.figures import svg
from moonfed.report.style import STYLE

PHONE_COLUMNS = 2  # columns that fit on a phone
LONG_WORD = 20  # letters, beyond which a word may be broken anywhere


def write_page(title: str, sections: Sequence[Section], path: Path, introduction: str = "", footer: str = "") -> None:
    """Write sections as one self-contained page."""
    write_bytes(path, page(title, sections, introduction, footer).encode())


def page(title: str, sections: Sequence[Section], introduction: str = "", footer: str = "") -> str:
    """Make the page; all text is escaped."""
    names = [_anchor(place, section) for place, section in enumerate(sections)]
    chapters = [(name, s) for name, s in zip(names, sections, strict=True) if s.depth == 2]
    items = "".join(f'<li><a href="#{name}">{escape(s.title)}</a></li>' for name, s in chapters)
    contents = f'<nav aria-label="Contents"><ol>{items}</ol></nav>' if len(chapters) > 1 else ""
    body = "\n".join(_section(name, section) for name, section in zip(names, sections, strict=True))
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


def _anchor(place: int, section: Section) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", section.title.lower()).strip("-")
    return f"s{place + 1}-{words}"[:60].rstrip("-")


def _section(name: str, section: Section) -> str:
    blocks = "\n".join(_block(block) for block in section.blocks)
    level = f"h{section.depth}"
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
        case Details(summary, blocks):
            inner = "\n".join(_block(part) for part in blocks)
            return f"<details>\n<summary>{escape(summary)}</summary>\n{inner}\n</details>"


def _plot(plot: Plot) -> str:
    label = f'<svg role="img" aria-label="{escape(plot.alt)}"'
    image = svg(plot.figure, plot.name).replace("<svg", label, 1)
    return f"<figure>{image}<figcaption>{escape(plot.caption)}</figcaption></figure>"


def _table(table: Table) -> str:
    """Render a table; on a narrow screen each row becomes a card whose cells carry the column names."""
    head = "".join(
        f'<th role="columnheader" scope="col"{_kind(table, i)}>{escape(name)}</th>'
        for i, name in enumerate(table.columns)
    )
    rows = "\n".join(_row(table, place) for place in range(len(table.rows)))
    kind = ' class="cards"' if len(table.columns) > PHONE_COLUMNS else ""
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return (
        f'<div class="table"><table role="table"{kind}>\n<caption>{escape(table.caption)}</caption>\n'
        f'<thead role="rowgroup"><tr role="row">{head}</tr></thead>\n<tbody role="rowgroup">\n{rows}\n</tbody></table>'
        f"{note}</div>"
    )


def _row(table: Table, place: int) -> str:
    cells: list[str] = []
    for i, (name, cell) in enumerate(zip(table.columns, table.rows[place], strict=True)):
        long = any(len(word) > LONG_WORD for word in cell.split())
        text = re.sub(r"([:,/=+_-])", r"\1<wbr>", escape(cell)) if long else escape(cell)
        kind = _kind(table, i, long)
        if i == 0:
            dot = f'<i style="background:{table.colours[place]}" aria-hidden="true"></i>' if table.colours else ""
            text = f'<span class="dotted">{dot}<span>{text}</span></span>' if dot else text
            cells.append(f'<th role="rowheader" scope="row"{kind}>{text}</th>')
        else:
            cells.append(f'<td role="cell" data-name="{escape(name)}"{kind}>{text}</td>')
    bold = ' class="best"' if place in table.bold else ""
    return f'<tr role="row"{bold}>{"".join(cells)}</tr>'


def _kind(table: Table, column: int, long: bool = False) -> str:
    if table.alignment[column] == "r":
        return ' class="number"'
    return ' class="long"' if long else ""
