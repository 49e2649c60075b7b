"""A table as numbers: numbers standardised, categories one-hot, both by what the training rows hold."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from moonfed.core.errors import UserError, unknown
from moonfed.data.readers.npz import LARGEST

Cells = list[str | None]
Columns = dict[str, Cells]
Held = Mapping[str, Sequence[str | None]]

MISSING = {"", "na", "n/a", "nan", "null", "none", "?"}
MANY = 100  # different values of a category, from which on it may be a name or a number of the row
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_WITH_COMMA = re.compile(r"[+-]?\d[\d.]*(,\d+)+(\.\d+)?")
_ENDLESS = {"inf", "+inf", "-inf", "infinity", "-infinity"}


def kinds_of(columns: Held, categories: Sequence[str], name: str) -> dict[str, str]:
    """Tell columns of numbers from categories: more than half of what a column of numbers holds are numbers."""
    for wanted in categories:
        if wanted not in columns:
            raise unknown(f"column of {name}", wanted, columns)
    return {k: "category" if k in categories or not _of_numbers(v) else "number" for k, v in columns.items()}


def _whole(cells: Sequence[str | None]) -> NDArray[np.float64] | None:
    """Read a column of nothing but numbers that are not too large at once; None for any other."""
    if None in cells or any("_" in cell for cell in cells if cell):
        return None
    try:
        numbers = np.array(cells, dtype=np.float64)
    except ValueError:
        return None
    return numbers if (np.abs(numbers) <= LARGEST).all() else None


def _of_numbers(cells: Sequence[str | None]) -> bool:
    if len(cells) and _whole(cells) is not None:
        return True
    there = [cell for cell in cells if not _missing(cell)]
    meant = sum(_meant(cell) for cell in there if cell is not None)
    return bool(there) and 2 * meant > len(there)


def _meant(cell: str) -> bool:
    return bool(_NUMBER.fullmatch(cell) or _WITH_COMMA.fullmatch(cell)) or cell.lower() in _ENDLESS


def _missing(cell: str | None) -> bool:
    return cell is None or cell.lower() in MISSING


def bad_cells(columns: Held, kinds: dict[str, str]) -> dict[int, str]:
    """Find the rows with a cell in a column of numbers that is neither a number nor missing."""
    bad: dict[int, str] = {}
    for name, cells in columns.items():
        if kinds.get(name) == "number" and _whole(cells) is None:
            for row, cell in enumerate(cells):
                if cell is not None and not _NUMBER.fullmatch(cell) and not _missing(cell):
                    bad.setdefault(row, f"{name} {_brief(cell)} {_trouble(cell)}")
                elif cell is not None and not _missing(cell) and abs(float(cell)) > LARGEST:
                    bad.setdefault(row, f"{name} {_brief(cell)} is beyond {LARGEST:g}")
    return bad


def _trouble(cell: str) -> str:
    if cell.lower() in _ENDLESS:
        return "is not finite"
    return "has a comma, write numbers like 1234.5" if _WITH_COMMA.fullmatch(cell) else "is no number"


def _brief(cell: str) -> str:
    return f'"{cell}"' if len(cell) <= 30 else f'"{cell[:27]}..."'


def fit(columns: Held, kinds: dict[str, str], name: str) -> dict[str, Any]:
    """Learn from training rows how a table becomes numbers."""
    made: list[dict[str, Any]] = []
    for column, cells in columns.items():
        if kinds[column] == "number":
            made.append({"name": column} | _fit_number(cells))
            continue
        values = sorted({cell for cell in cells if cell is not None and not _missing(cell)})
        if len(values) > MANY and 2 * len(values) > len(cells):
            raise UserError(
                f"{name}: column {column} has {len(values):,} different values in {len(cells):,} training rows, too "
                f"many for a category; leave it out with --ignore {column}, or read it as text with --text {column}"
            )
        made.append({"name": column, "kind": "category", "values": values})
    if not sum(map(_width, made)):
        raise UserError(f"{name} has no column to learn from beside the label and the party")
    return {"columns": made}


def _fit_number(cells: Sequence[str | None]) -> dict[str, Any]:
    numbers = _numbers(cells)
    there = numbers[~np.isnan(numbers)]
    mean = float(there.mean()) if len(there) else 0.0
    varies = len(there) > 0 and there.max() > there.min()  # the deviation of equal numbers is not always 0
    std = float(there.std()) if varies else 0.0
    return {"kind": "number", "mean": mean, "std": std or 1.0, "missing": len(there) < len(numbers)}


def _width(column: dict[str, Any]) -> int:
    return len(column["values"]) if column["kind"] == "category" else 1 + column["missing"]


def encode(columns: Held, details: dict[str, Any]) -> Tensor:
    """Turn cells into numbers: [row, number]."""
    rows = len(next(iter(columns.values())))
    parts: list[NDArray[np.float32]] = []
    for column in details["columns"]:
        cells = columns[column["name"]]
        if column["kind"] == "category":
            place = {value: k for k, value in enumerate(column["values"])}
            hot = np.zeros((rows, len(place)), dtype=np.float32)
            for row, cell in enumerate(cells):
                if cell in place:
                    hot[row, place[cell]] = 1
            parts.append(hot)
            continue
        numbers = _numbers(cells)
        gone = np.isnan(numbers)
        scaled = np.where(gone, 0.0, (numbers - column["mean"]) / column["std"])
        parts.append(scaled[:, None].astype(np.float32))
        if column["missing"]:
            parts.append(gone[:, None].astype(np.float32))
    return torch.from_numpy(np.concatenate(parts, axis=1))


def _numbers(cells: Sequence[str | None]) -> NDArray[np.float64]:
    whole = _whole(cells)
    if whole is not None:
        return whole
    return np.array([math.nan if cell is None or _missing(cell) else float(cell) for cell in cells], dtype=np.float64)


def told(details: dict[str, Any]) -> str:
    """Say what a table holds."""
    kinds = [column["kind"] for column in details["columns"]]
    numbers, categories = kinds.count("number"), kinds.count("category")
    parts = [f"{n} {word}{'s' * (n != 1)}" for n, word in ((numbers, "number"),) if n]
    parts += [f"{n} {'category' if n == 1 else 'categories'}" for n in (categories,) if n]
    return " and ".join(parts)
