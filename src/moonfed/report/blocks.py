"""What a page is made of: sections of paragraphs, tables, pictures and folded parts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Paragraph:
    """A few plain sentences; `warns` sets off what a reader must not miss."""

    text: str
    warns: bool = False


@dataclass(frozen=True)
class Table:
    """Cells as they are shown, row by row; its name becomes the name of its files."""

    name: str
    caption: str
    columns: list[str]
    rows: list[list[str]]
    words: int = 1  # columns of words at the left; the others are numbers
    colours: list[str] = field(default_factory=list)  # one a row: its method's colour in the figures
    note: str = ""


@dataclass(frozen=True)
class Picture:
    """A matplotlib figure with the sentence that stands for it where it cannot be seen."""

    name: str
    figure: Any  # matplotlib.figure.Figure
    alt: str
    caption: str


@dataclass(frozen=True)
class Pictures:
    """Pictures that belong beside each other where the page is wide enough."""

    pictures: list[Picture]
    small: bool = False  # many a line, for panels


@dataclass(frozen=True)
class Folded:
    """Blocks that are shown when the reader asks for them, and in print."""

    summary: str
    blocks: "list[Block]"


Block: TypeAlias = Paragraph | Table | Pictures | Folded


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it; depth 2 is a chapter, 3 a part of it."""

    title: str
    blocks: list[Block]
    depth: int = 2


def tables_of(sections: Sequence[Section]) -> list[Table]:
    """List every table of a page, folded ones too."""
    return [block for block in _all(sections) if isinstance(block, Table)]


def pictures_of(sections: Sequence[Section]) -> list[Picture]:
    """List every picture of a page, folded ones too."""
    return [picture for block in _all(sections) if isinstance(block, Pictures) for picture in block.pictures]


def _all(sections: Sequence[Section]) -> Iterator[Block]:
    for section in sections:
        yield from _unfolded(section.blocks)


def _unfolded(blocks: Sequence[Block]) -> Iterator[Block]:
    for block in blocks:
        yield block
        if isinstance(block, Folded):
            yield from _unfolded(block.blocks)
