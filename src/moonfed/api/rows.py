"""Data as Python has it: a name, a path, a Dataset, arrays, tensors, a torch Dataset."""

import sys
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import TensorDataset

from moonfed.core.errors import UserError
from moonfed.data import DATASETS, Dataset
from moonfed.data.own.arrays import from_arrays
from moonfed.data.own.build import assemble
from moonfed.data.own.reading import Pace
from moonfed.run.data_settings import DataSettings, own_settings

Rows: TypeAlias = tuple[Any, ...] | TorchDataset[Any]
"""(x, y) or (x, y, party), arrays or tensors, or a torch Dataset of such rows."""

DataLike: TypeAlias = str | PathLike[str] | Dataset | Rows
"""A data set of the catalogue by name, a file or folder, a Dataset, or rows."""

MEMORY = ".in-memory"  # stands for the place of rows that lie in no file


class Given(NamedTuple):
    """What a user gave as data: as settings, and as a data set and the labels' own values where it has no place."""

    settings: dict[str, Any]
    data: Dataset | None = None
    classes: Sequence[Any] | None = None


def given(data: DataLike, test: Rows | None, read: DataSettings, say: Callable[[str], None]) -> Given:
    """Take data in any of its forms; read says how rows are held out."""
    if isinstance(data, str | PathLike):
        if test is not None:
            raise UserError("test rows are given as (x, y) where training rows are; for a file, test is a path")
        return Given({"dataset": data} if data in DATASETS else {"path": str(data)})
    if isinstance(data, Dataset):
        if test is not None:
            raise UserError("a Dataset brings its own test rows; leave test away")
        return Given({"path": data.name + MEMORY}, data)
    held = _arrays(data, say)
    if test is not None:
        held |= {f"{name}_test": value for name, value in _arrays(test, say).items()}
    y = held["y"].tolist()
    found = from_arrays(held, "the data", own_settings(read))
    made = assemble(found, "arrays" + MEMORY, own_settings(read), lambda line: None)
    values = {str(value): value for value in y}
    return Given({"path": "arrays" + MEMORY}, made, [values[name] for name in made.class_names])


def _arrays(rows: Rows, say: Callable[[str], None]) -> dict[str, NDArray[Any]]:
    """Take x, y and whose each row is, if that is given, as arrays."""
    if isinstance(rows, TorchDataset):
        rows = _collected(rows, say)
    if not isinstance(rows, tuple | list) or len(rows) not in (2, 3):
        raise UserError(
            f"data is (x, y) or (x, y, party), a torch Dataset, a name or a path, got {type(rows).__name__}"
        )
    names = ("x", "y", "party")
    return {name: _array(part, name) for name, part in zip(names, rows, strict=False)}


def _array(part: Any, name: str) -> NDArray[Any]:
    found = part.detach().cpu().numpy() if isinstance(part, Tensor) else np.asarray(part)
    if name != "x" and found.dtype.kind == "O":
        found = found.astype(str)
    if name != "x" and found.dtype.kind == "f" and bool((found == np.round(found)).all()):
        found = found.astype(np.int64)
    return found


def _collected(rows: TorchDataset[Any], say: Callable[[str], None]) -> tuple[Any, ...]:
    """Read every row of a torch Dataset once."""
    if isinstance(rows, TensorDataset):
        return rows.tensors
    if not hasattr(rows, "__len__"):
        raise UserError("a torch Dataset needs a length; one that can only be iterated over has none")
    pace, found = Pace(say, type(rows).__name__, "rows"), list[tuple[Any, ...]]()
    for place in range(len(rows)):  # type: ignore[arg-type]
        row = rows[place]
        if not isinstance(row, tuple | list) or len(row) not in (2, 3):
            raise UserError(f"row {place} of the torch Dataset needs (x, y) or (x, y, party), got {type(row).__name__}")
        found.append((torch.as_tensor(row[0]), *row[1:]))
        pace.at(place + 1, len(rows))  # type: ignore[arg-type]
    if not found:
        raise UserError("the torch Dataset is empty")
    x, *others = zip(*found, strict=True)
    shapes = {tuple(one.shape) for one in x}
    if len(shapes) > 1:
        raise UserError(f"rows of the torch Dataset need one shape, got {' and '.join(map(str, list(shapes)[:2]))}")
    return (torch.stack(list(x)), *(np.asarray([_plain(v) for v in part]) for part in others))


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor) else value


def to_stderr(line: str) -> None:
    """Say a line."""
    print(line, file=sys.stderr)


def is_path(data: Any) -> bool:
    """Whether rows to be judged are named by their place."""
    return isinstance(data, str | Path)
