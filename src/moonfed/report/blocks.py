"""The parts of a report: sections of paragraphs, tables, plots and collapsible details."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Paragraph:
    """A few plain sentences; `warning` highlights what a reader must not miss."""

    text: str
    warning: bool = False


@dataclass(frozen=True)
class Table:
    """A table with its cells as text; every output format renders this one value.

    The name becomes the file name. `align` has one letter per column, l or r; by default the first column is left and
    the others are right.
    """

    name: str
    caption: str
    columns: list[str]
    rows: list[list[str]]
    align: str = ""
    colours: list[str] = field(default_factory=list)  # one per row: the colour of its method in the figures
    note: str = ""
    bold: frozenset[int] = frozenset()  # rows to emphasise
    grouped: bool = False  # rows with the same first cell form a group: on a page, one heading above them
    links: dict[str, str] = field(default_factory=dict)  # the section that the name of a group leads to
    shades: list[list[float]] = field(default_factory=list)  # 0 to 1, one per cell but the first; empty: no shading

    @property
    def alignment(self) -> str:
        """One letter per column, l or r."""
        return self.align or "l" + "r" * (len(self.columns) - 1)


@dataclass(frozen=True)
class Plot:
    """A matplotlib figure with alternative text and a caption."""

    name: str
    figure: Any  # matplotlib.figure.Figure
    alt: str
    caption: str


@dataclass(frozen=True)
class PlotGrid:
    """Plots shown side by side where the page is wide enough."""

    plots: list[Plot]
    small: bool = False  # several small panels per line


@dataclass(frozen=True)
class Details:
    """Blocks that are collapsed on the screen and open in print; with an anchor, links lead to it and open it."""

    summary: str
    blocks: "list[Block]"
    anchor: str = ""


@dataclass(frozen=True)
class Section:
    """A heading with its blocks; depth 2 is a chapter, 3 a part of it."""

    title: str
    blocks: "list[Block]"
    depth: int = 2
    short: str = ""  # its name in the table of contents; default: the title


Block: TypeAlias = Paragraph | Table | PlotGrid | Details | Section


def tables_of(sections: Sequence[Section]) -> list[Table]:
    """List every table of a page, collapsed ones included."""
    return [block for block in _all_blocks(sections) if isinstance(block, Table)]


def plots_of(sections: Sequence[Section]) -> list[Plot]:
    """List every plot of a page, collapsed ones included."""
    return [plot for block in _all_blocks(sections) if isinstance(block, PlotGrid) for plot in block.plots]


def _all_blocks(sections: Sequence[Section]) -> Iterator[Block]:
    for section in sections:
        yield from _flatten(section.blocks)


def _flatten(blocks: Sequence[Block]) -> Iterator[Block]:
    for block in blocks:
        yield block
        if isinstance(block, Details | Section):
            yield from _flatten(block.blocks)
