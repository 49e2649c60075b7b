"""Encodes tables as numbers: numeric columns are standardised, categories one-hot, both learned from training rows."""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from moonfed.core.errors import UserError, unknown
from moonfed.core.types import MAX_NUMBER

Cells = list[str | None]
Columns = dict[str, Cells]
ColumnView = Mapping[str, Sequence[str | None]]

MISSING = {"", "na", "n/a", "nan", "null", "none", "?"}
MAX_LISTED = 20  # names of columns that an error lists
MAX_SAFE_VALUES = 100  # a category with more different values may be a name or an identifier
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_WITH_COMMA = re.compile(r"[+-]?\d[\d.]*(,\d+)+(\.\d+)?")
_INFINITE = {"inf", "+inf", "-inf", "infinity", "-infinity"}


def column_kinds(columns: ColumnView, categories: Sequence[str], name: str) -> dict[str, str]:
    """Classify columns: a column is numeric if more than half of its filled cells are numbers."""
    for column in categories:
        if column not in columns:
            raise unknown_column(column, columns, name)
    return {k: "category" if k in categories or not _is_numeric(v) else "number" for k, v in columns.items()}


def unknown_column(column: str, columns: Collection[str], name: str) -> UserError:
    """Make the error for a column that a table does not have; of a wide table it lists the nearest names only."""
    if len(columns) <= MAX_LISTED:
        return unknown("column", column, columns, f"in {name}")
    near = get_close_matches(column, columns, n=MAX_LISTED, cutoff=0.5) or list(columns)[:MAX_LISTED]
    return unknown("column", column, near, f"among the {len(columns):,} of {name}")


def list_columns(columns: Collection[str]) -> str:
    """List the names of columns, of a wide table the first ones."""
    more = f", ... ({len(columns):,})" if len(columns) > MAX_LISTED else ""
    return ", ".join(list(columns)[:MAX_LISTED]) + more


def _parse_all(cells: Sequence[str | None]) -> NDArray[np.float64] | None:
    """Parse a column at once; None unless every cell is a number in range."""
    if None in cells or any("_" in cell for cell in cells if cell):
        return None
    try:
        numbers = np.array(cells, dtype=np.float64)
    except ValueError:
        return None
    return numbers if (np.abs(numbers) <= MAX_NUMBER).all() else None


def _is_numeric(cells: Sequence[str | None]) -> bool:
    if len(cells) and _parse_all(cells) is not None:
        return True
    filled = [cell for cell in cells if not _is_missing(cell)]
    numbers = sum(_looks_numeric(cell) for cell in filled if cell is not None)
    return bool(filled) and 2 * numbers > len(filled)


def _looks_numeric(cell: str) -> bool:
    return bool(_NUMBER.fullmatch(cell) or _WITH_COMMA.fullmatch(cell)) or cell.lower() in _INFINITE


def _is_missing(cell: str | None) -> bool:
    return cell is None or cell.lower() in MISSING


def bad_cells(columns: ColumnView, kinds: dict[str, str]) -> dict[int, str]:
    """Find the rows with a cell in a numeric column that is neither a number nor missing."""
    bad: dict[int, str] = {}
    for name, cells in columns.items():
        if kinds.get(name) == "number" and _parse_all(cells) is None:
            for row, cell in enumerate(cells):
                if cell is not None and not _NUMBER.fullmatch(cell) and not _is_missing(cell):
                    bad.setdefault(row, f"{name} {_quote(cell)} {_problem(cell)}")
                elif cell is not None and not _is_missing(cell) and abs(float(cell)) > MAX_NUMBER:
                    bad.setdefault(row, f"{name} {_quote(cell)} is beyond {MAX_NUMBER:g}")
    return bad


def identifier_columns(columns: ColumnView, kinds: dict[str, str]) -> list[str]:
    """Find columns that may be identifiers: whole numbers, all different, in more rows than a category has values."""
    found: list[str] = []
    for name, cells in columns.items():
        if kinds.get(name) == "number" and len(set(cells)) == len(cells) > MAX_SAFE_VALUES:
            numbers = _parse_all(cells)
            if numbers is not None and (numbers == np.floor(numbers)).all():
                found.append(name)
    return found


def _problem(cell: str) -> str:
    if cell.lower() in _INFINITE:
        return "is not finite"
    return "has a comma, write numbers like 1234.5" if _WITH_COMMA.fullmatch(cell) else "is not a number"


def _quote(cell: str) -> str:
    return f'"{cell}"' if len(cell) <= 30 else f'"{cell[:27]}..."'


def fit(columns: ColumnView, kinds: dict[str, str], name: str) -> dict[str, Any]:
    """Learn from training rows how a table becomes numbers."""
    details: list[dict[str, Any]] = []
    for column, cells in columns.items():
        if kinds[column] == "number":
            details.append({"name": column} | _fit_number(cells))
            continue
        values = sorted({cell for cell in cells if cell is not None and not _is_missing(cell)})
        if len(values) > MAX_SAFE_VALUES and 2 * len(values) > len(cells):
            raise UserError(
                f"{name}: column {column} has {len(values):,} different values in {len(cells):,} training rows, too "
                f"many for a category; leave it out with --ignore {column}, or read it as text with --text {column}"
            )
        details.append({"name": column, "kind": "category", "values": values})
    if not sum(map(_width, details)):
        raise UserError(f"{name} has no column to learn from besides the label and the party")
    return {"columns": details}


def _fit_number(cells: Sequence[str | None]) -> dict[str, Any]:
    numbers = _parse(cells)
    known = numbers[~np.isnan(numbers)]
    mean = float(known.mean()) if len(known) else 0.0
    varies = len(known) > 0 and known.max() > known.min()  # the computed deviation of equal numbers is not always 0
    std = float(known.std()) if varies else 0.0
    return {"kind": "number", "mean": mean, "std": std or 1.0, "missing": len(known) < len(numbers)}


def _width(column: dict[str, Any]) -> int:
    return len(column["values"]) if column["kind"] == "category" else 1 + column["missing"]


def encode(columns: ColumnView, details: dict[str, Any]) -> Tensor:
    """Turn cells into numbers: float32 [row, feature]."""
    rows = len(next(iter(columns.values())))
    parts: list[NDArray[np.float32]] = []
    for column in details["columns"]:
        cells = columns[column["name"]]
        if column["kind"] == "category":
            index = {value: k for k, value in enumerate(column["values"])}
            one_hot = np.zeros((rows, len(index)), dtype=np.float32)
            for row, cell in enumerate(cells):
                if cell in index:
                    one_hot[row, index[cell]] = 1
            parts.append(one_hot)
            continue
        numbers = _parse(cells)
        missing = np.isnan(numbers)
        scaled = np.where(missing, 0.0, (numbers - column["mean"]) / column["std"])
        parts.append(scaled[:, None].astype(np.float32))
        if column["missing"]:
            parts.append(missing[:, None].astype(np.float32))
    return torch.from_numpy(np.concatenate(parts, axis=1))


def _parse(cells: Sequence[str | None]) -> NDArray[np.float64]:
    numbers = _parse_all(cells)
    if numbers is not None:
        return numbers
    return np.array(
        [math.nan if cell is None or _is_missing(cell) else float(cell) for cell in cells], dtype=np.float64
    )


def describe(details: dict[str, Any]) -> str:
    """Describe the columns of a table: "5 numbers and 1 category"."""
    kinds = [column["kind"] for column in details["columns"]]
    numbers, categories = kinds.count("number"), kinds.count("category")
    parts = [f"{numbers} number{'s' * (numbers != 1)}"] if numbers else []
    parts += [f"{categories} {'category' if categories == 1 else 'categories'}"] if categories else []
    return " and ".join(parts)
