"""Reads CSV files, and turns the columns of any table into rows with labels and parties."""

import csv
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from moonfed.core.errors import UserError
from moonfed.core.files import short
from moonfed.data.readers.columns import (
    MAX_LISTED,
    Cells,
    Columns,
    bad_cells,
    column_kinds,
    list_columns,
    unknown_column,
)
from moonfed.data.readers.limits import ReadProgress, check_columns, check_file
from moonfed.data.readers.options import TABLE, TEXT, ReaderOptions
from moonfed.data.readers.raw_rows import BadRow, RawRows

Schema = dict[str, Any] | None
SUFFIXES = (".csv", ".tsv", ".tab", ".txt")
MEMORY_FACTOR = 12.0  # bytes of memory per byte of a CSV file while it is read
MAX_LINE = 16_000_000  # characters
_SIGNATURES = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"PK": "a zip archive or spreadsheet", b"\x1f\x8b": "gzip"}


@dataclass(frozen=True)
class Table:
    """The cells of a table, and the line of the file in which each row begins."""

    name: str
    columns: Columns
    lines: list[int]
    unit: str = "line"
    bad: tuple[BadRow, ...] = ()
    notes: tuple[str, ...] = ()

    def place(self, row: int) -> str:
        """Return the location of a row."""
        return f"{self.name} {self.unit} {self.lines[row]}"


def read_csv(path: Path) -> Table:
    """Read a CSV file with a header; a row with a wrong number of cells or wrong quoting is bad."""
    check_file(path, MEMORY_FACTOR)
    try:
        _check_signature(path)
        with path.open(encoding="utf-8-sig", newline="") as file:
            head = file.readline(MAX_LINE)
            file.seek(0)
            lines = _Lines(file, path.name)
            return _build_table(path.name, _read_records(lines, _delimiter(path, head)))
    except UnicodeDecodeError:
        raise UserError(f"{path.name} line {_find_not_utf8(path)} is not UTF-8; save the file as UTF-8") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {short(error)}") from None


class _Lines:
    """The lines of a file, none of them longer than a limit; it notices NUL bytes."""

    def __init__(self, file: TextIO, name: str) -> None:
        self.file, self.name = file, name
        self.number, self.has_nul = 0, False

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self.file.readline(MAX_LINE)
        if not line:
            raise StopIteration
        self.number += 1
        if len(line) == MAX_LINE and line[-1] not in "\r\n":
            raise UserError(f"{self.name} line {self.number} has more than {MAX_LINE:,} characters; is it a table?")
        self.has_nul = self.has_nul or "\0" in line
        return line


def _read_records(lines: _Lines, delimiter: str) -> Iterator[tuple[int, list[str] | str]]:
    """Yield the first line of each record, with its cells or with the reason why it is bad."""
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        line, lines.has_nul = lines.number + 1, False
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield line, _quoting_problem(str(error))
            continue
        if lines.has_nul:
            yield line, "contains a NUL byte; is it UTF-16, or no text?"
        elif cells:  # an empty line is not a row
            yield line, cells


def _quoting_problem(error: str) -> str:
    if "end of data" in error:
        return "a quote is opened and never closed"
    if "field limit" in error:
        return f"a cell of more than {csv.field_size_limit():,} characters, or a quote that is never closed"
    return f"wrongly quoted, {error}"


def _build_table(name: str, records: Iterator[tuple[int, list[str] | str]]) -> Table:
    line, header = next(records, (1, ""))
    if isinstance(header, str):
        raise UserError(f"{name} line {line}: {header}" if header else f"{name} has no rows and no header")
    check_columns(name, len(header))
    header = [cell.strip() for cell in header]
    duplicate = next((column for column, count in Counter(header).items() if column and count > 1), None)
    if duplicate is not None:
        raise UserError(f'{name} line {line} has two columns "{duplicate}"; rename one of them')
    if not any(header):
        raise UserError(f"{name} line {line} names no column; the first line of a table names its columns")
    columns: list[Cells] = [[] for _ in header]
    lines: list[int] = []
    bad: list[BadRow] = []
    progress = ReadProgress(name, "rows")
    for line, cells in records:
        if isinstance(cells, str):
            bad.append(BadRow(f"{name} line {line}", cells))
        elif len(cells) != len(header):
            bad.append(BadRow(f"{name} line {line}", f"{len(cells)} cells, the header has {len(header)}"))
        else:
            lines.append(line)
            for column, cell in zip(columns, cells, strict=True):
                column.append(cell.strip())
        progress.update(len(lines))
    named = {column: cells for column, cells in zip(header, columns, strict=True) if column}
    unnamed = [str(k) for k, column in enumerate(header, start=1) if not column]
    ignored = f"{', '.join(unnamed[:MAX_LISTED])}{', ...' if len(unnamed) > MAX_LISTED else ''}"
    notes = (f"{name}: column {ignored} has no name and is ignored",) if unnamed else ()
    return Table(name, named, lines, "line", tuple(bad), notes)


def table_rows(
    table: Table, options: ReaderOptions, schema: Schema = None, labelled: bool = True, may_lack_party: bool = False
) -> RawRows:
    """Assign the columns of a table to label, party, text or inputs; a row with an empty label, party or text is bad.

    With labelled=False (rows to predict), label and party may be missing.
    """
    name, columns = table.name, dict(table.columns)
    if not table.lines and not table.bad:
        raise UserError(f"{name} has a header and no rows")
    for column in options.ignore:
        if column not in columns:
            raise unknown_column(column, columns, name)
        del columns[column]
    _check_roles(options)
    label = options.label or "label"
    if options.label is None and label not in columns and labelled:
        raise UserError(f"{name} needs --label COLUMN, the column of the class; its columns: {list_columns(columns)}")
    labels = _pop_column(table, columns, label, labelled)
    parties = _pop_column(table, columns, options.party, labelled and not may_lack_party)
    text = None if options.text is None else _fill_missing(_pop_column(table, columns, options.text, True)) or []
    bad = {row: f"{options.text} is empty" for row, cell in enumerate(text or []) if not cell}
    for column, cells in ((options.party, parties), (label, labels)) if labelled else ():
        bad |= {row: f"{column} is empty" for row, cell in enumerate(cells or []) if not cell}
    if labelled:
        bad |= {row: f"{label} is {cell}" for row, cell in enumerate(labels or []) if cell and cell.lower() == "nan"}
    roles = (_fill_missing(labels), _fill_missing(parties), table.place)
    if text is not None:
        return RawRows(name, TEXT, text, *roles, {}, table.bad, table.notes).without(bad)
    if not columns:
        raise UserError(f"{name} has no column to learn from besides the label and the party")
    kinds = schema["kinds"] if schema else column_kinds(columns, options.categories, name)
    for column in kinds:
        if column not in columns:
            raise unknown_column(column, columns, name)
    inputs = {column: columns[column] for column in kinds}
    rows = RawRows(name, TABLE, inputs, *roles, {"kinds": kinds}, table.bad, table.notes)
    return rows.without(bad_cells(inputs, kinds) | bad)


def _fill_missing(cells: Cells | None) -> list[str] | None:
    return None if cells is None else [cell or "" for cell in cells]


def _check_roles(options: ReaderOptions) -> None:
    roles = {"--label": options.label, "--party": options.party, "--text": options.text}
    named = [(flag, column) for flag, column in roles.items() if column is not None]
    for k, (flag, column) in enumerate(named):
        for other_flag, other in named[:k]:
            if column == other:
                raise UserError(f"{other_flag} and {flag} both name the column {column}; name two different columns")


def _pop_column(table: Table, columns: Columns, column: str | None, required: bool) -> Cells | None:
    if column is None:
        return None
    if column not in columns:
        if column in table.columns:
            raise UserError(f"column {column} of {table.name} is named twice: as label, party or text, or by --ignore")
        if required:
            raise unknown_column(column, table.columns, table.name)
        return None
    return columns.pop(column)


def _delimiter(path: Path, head: str) -> str:
    if path.suffix.lower() in (".tsv", ".tab"):
        return "\t"
    return max(",;\t|", key=head.count)


def _check_signature(path: Path) -> None:
    with path.open("rb") as file:
        start = file.read(2)
    if start in _SIGNATURES:
        raise UserError(f"{path.name} is {_SIGNATURES[start]}, not a CSV file in UTF-8; save it as one")


def _find_not_utf8(path: Path) -> int:
    """Return the first line that is not UTF-8."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return 1
