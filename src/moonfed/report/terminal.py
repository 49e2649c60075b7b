"""Renders tables and lines on the terminal."""

import os
import textwrap

from rich import box
from rich.console import Console
from rich.table import Table as RichTable

from moonfed.report.blocks import Table

PIPE_WIDTH = 160  # columns where the output is not a terminal and COLUMNS is not set
HEADER_WIDTH = 16  # characters, beyond which the name of a column is wrapped
GAP = 2  # between columns


def print_table(table: Table) -> None:
    """Print a table with its caption above and its note below.

    Lines break between words only. Columns that do not fit beside each other so follow below, after the first column.
    """
    console = _console()
    headers = [
        textwrap.fill(name, HEADER_WIDTH, break_long_words=False, break_on_hyphens=False) for name in table.columns
    ]
    columns = [[header, *cells] for header, *cells in zip(headers, *table.rows, strict=True)]
    for number, places in enumerate(_panels(columns, console.width)):
        title = table.caption if table.caption and not number else None
        rendered = RichTable(title=title, title_justify="left", title_style="", box=box.SIMPLE_HEAD)
        rendered.pad_edge, rendered.padding = False, (0, 1, 0, 0)
        widths = _widths([columns[place] for place in places], console.width)
        for place, width in zip(places, widths, strict=True):
            justify = "left" if table.alignment[place] == "l" else "right"
            rendered.add_column(headers[place], justify=justify, overflow="fold", width=width)
        for line, row in enumerate(table.rows):
            rendered.add_row(*(row[place] for place in places), style="bold" if line in table.bold else None)
        console.print(rendered)
    if table.note:
        console.print(table.note)


def print_line(line: str) -> None:
    """Print one line as it is, without markup."""
    _console().print(line)


def _panels(columns: list[list[str]], available: int) -> list[list[int]]:
    """Divide columns into groups that fit beside each other, each with the first column; one group if all do."""
    words = [_longest_word(cells) + GAP for cells in columns]
    panels: list[list[int]] = [[0]]
    for place in range(1, len(columns)):
        if len(panels[-1]) > 1 and sum(words[k] for k in [*panels[-1], place]) > available:
            panels.append([0])
        panels[-1].append(place)
    return panels


def _longest_word(cells: list[str]) -> int:
    return max(len(word) for cell in cells for word in cell.split() or [""])


def _widths(columns: list[list[str]], available: int) -> list[int] | list[None]:
    """Widths that break lines between words only; None for each column where even that is too wide."""
    words = [_longest_word(cells) for cells in columns]
    lines = [max(len(line) for cell in cells for line in cell.splitlines() or [""]) for cells in columns]
    spare = available - GAP * len(columns) - sum(words)
    if spare < 0:
        return [None] * len(columns)
    widths = list(words)
    for place in sorted(range(len(columns)), key=lambda place: lines[place] - words[place]):
        more = min(lines[place] - words[place], spare)
        widths[place], spare = widths[place] + more, spare - more
    return widths


def _console() -> Console:
    console = Console(highlight=False, markup=False, emoji=False)
    asked = os.environ.get("COLUMNS", "")
    if not console.is_terminal:
        console.width = int(asked) if asked.isdigit() and int(asked) else PIPE_WIDTH
    return console
