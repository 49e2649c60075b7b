"""Tables: CSV files, and what becomes of the columns of any table."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moonfed.core.errors import UserError, unknown
from moonfed.core.files import short
from moonfed.data.readers.columns import Cells, Columns, bad_cells, kinds_of
from moonfed.data.readers.limits import Pace, Say, check_room
from moonfed.data.readers.options import TABLE, TEXT, ReaderOptions
from moonfed.data.readers.raw_rows import Bad, Found

Scheme = dict[str, Any] | None
SUFFIXES = (".csv", ".tsv", ".tab", ".txt")
TIMES = 12.0  # bytes of memory that a byte of a CSV file takes while it is read
_MARKS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"PK": "a zip archive or spreadsheet", b"\x1f\x8b": "gzip"}


@dataclass(frozen=True)
class Table:
    """The cells of a table, and in which lines of the file its rows begin."""

    name: str
    columns: Columns
    lines: list[int]
    unit: str = "line"
    bad: tuple[Bad, ...] = ()
    notes: tuple[str, ...] = ()

    def place(self, row: int) -> str:
        """Say where a row stands."""
        return f"{self.name} {self.unit} {self.lines[row]}"


def read_csv(path: Path, say: Say) -> Table:
    """Read a CSV file with a header; a row of another length, or one that is wrongly quoted, is bad."""
    check_room(path, TIMES)
    try:
        _check_marks(path)
        with path.open(encoding="utf-8-sig", newline="") as file:
            head = file.readline()
            file.seek(0)
            rows = _records(csv.reader(file, delimiter=_delimiter(path, head), strict=True))
            return _table(path.name, rows, Pace(say, path.name, "rows"))
    except UnicodeDecodeError:
        raise UserError(f"{path.name} line {_not_utf8(path)} is not UTF-8; save the file as UTF-8") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {short(error)}") from None


def _records(reader: Any) -> Iterator[tuple[int, list[str] | str]]:
    """Give each record with the line it begins in, or what is wrong with it."""
    while True:
        begins = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield begins, _trouble(str(error))
            continue
        if cells:  # an empty line is no row
            yield begins, [cell.strip() for cell in cells]


def _trouble(error: str) -> str:
    if "end of data" in error:
        return "a quote is opened and never closed"
    if "field limit" in error:
        return f"a cell of more than {csv.field_size_limit():,} characters, or a quote that is never closed"
    return f"wrongly quoted, {error}"


def _table(name: str, records: Iterator[tuple[int, list[str] | str]], pace: Pace) -> Table:
    line, header = next(records, (1, ""))
    if isinstance(header, str):
        raise UserError(f"{name} line {line}: {header}" if header else f"{name} holds no row, not even a header")
    twice = [column for column in header if column and header.count(column) > 1]
    if twice:
        raise UserError(f'{name} line {line} has two columns "{twice[0]}"; give each column a name of its own')
    lists: list[Cells] = [[] for _ in header]
    lines: list[int] = []
    bad: list[Bad] = []
    for line, cells in records:
        if isinstance(cells, str):
            bad.append(Bad(f"{name} line {line}", cells))
        elif len(cells) != len(header):
            bad.append(Bad(f"{name} line {line}", f"{len(cells)} cells, the header has {len(header)}"))
        else:
            lines.append(line)
            for column, cell in zip(lists, cells, strict=True):
                column.append(cell)
        pace.at(len(lines))
    named = {column: cells for column, cells in zip(header, lists, strict=True) if column}
    nameless = [str(k) for k, column in enumerate(header, start=1) if not column]
    notes = tuple(f"{name}: column {k} has no name and is left out" for k in nameless)
    return Table(name, named, lines, "line", tuple(bad), notes)


def as_rows(
    table: Table, settings: ReaderOptions, scheme: Scheme = None, labelled: bool = True, may_lack_party: bool = False
) -> Found:
    """Tell the columns of a table apart: label, party, text or inputs; an empty label, party or text is bad.

    Without labelled, rows that are to be predicted, label and party may be missing.
    """
    name, columns = table.name, dict(table.columns)
    if not table.lines and not table.bad:
        raise UserError(f"{name} has a header and no rows")
    for column in settings.ignore:
        if column not in columns:
            raise unknown(f"column of {name}", column, columns)
        del columns[column]
    _check_roles(settings)
    label = settings.label or "label"
    if settings.label is None and label not in columns and labelled:
        raise UserError(f"{name}: which column is the class? --label COLUMN; its columns: {', '.join(columns)}")
    labels = _taken(table, columns, label, labelled)
    parties = _taken(table, columns, settings.party, labelled and not may_lack_party)
    content: Columns | list[str] = columns
    bad: dict[int, str] = {}
    if settings.text is not None:
        content = _filled(_taken(table, columns, settings.text, True)) or []
        bad |= {row: f"{settings.text} is empty" for row, text in enumerate(content) if not text}
    for column, cells in ((settings.party, parties), (label, labels)) if labelled else ():
        bad |= {row: f"{column} is empty" for row, cell in enumerate(cells or []) if not cell}
    rows = (_filled(labels), _filled(parties), table.place)
    if settings.text is not None:
        return Found(name, TEXT, content, *rows, {}, table.bad, table.notes).without(bad)
    if not columns:
        raise UserError(f"{name} has no column to learn from beside the label and the party")
    kinds = scheme["kinds"] if scheme else kinds_of(columns, settings.categories, name)
    for column in kinds:
        if column not in columns:
            raise unknown(f"column of {name}", column, columns)
    content = {column: columns[column] for column in kinds}
    bad = bad_cells(content, kinds) | bad
    return Found(name, TABLE, content, *rows, {"kinds": kinds}, table.bad, table.notes).without(bad)


def _filled(cells: Cells | None) -> list[str] | None:
    return None if cells is None else [cell or "" for cell in cells]


def _check_roles(settings: ReaderOptions) -> None:
    roles = {"--label": settings.label, "--party": settings.party, "--text": settings.text}
    given = [(flag, column) for flag, column in roles.items() if column is not None]
    for k, (flag, column) in enumerate(given):
        for other, again in given[:k]:
            if column == again:
                raise UserError(f"{other} and {flag} both name the column {column}; they need two different columns")


def _taken(table: Table, columns: Columns, wanted: str | None, needed: bool) -> Cells | None:
    if wanted is None:
        return None
    if wanted not in columns:
        if wanted in table.columns:
            raise UserError(f"column {wanted} of {table.name} is named twice: as label, party or text, or by --ignore")
        if needed:
            raise unknown(f"column of {table.name}", wanted, table.columns)
        return None
    return columns.pop(wanted)


def _delimiter(path: Path, head: str) -> str:
    if path.suffix.lower() in (".tsv", ".tab"):
        return "\t"
    return max(",;\t|", key=head.count)


def _check_marks(path: Path) -> None:
    with path.open("rb") as file:
        start = file.read(2)
    for mark, what in _MARKS.items():
        if start == mark:
            raise UserError(f"{path.name} is {what}, not a CSV file in UTF-8; save it as one")


def _not_utf8(path: Path) -> int:
    """Find the line that is not UTF-8."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return 1
