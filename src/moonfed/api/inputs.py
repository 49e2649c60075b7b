"""Data as Python has it: a name, a path, a Dataset, arrays, tensors, a torch Dataset."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset as TorchDataset

from moonfed.core.errors import UserError, unknown
from moonfed.core.files import short
from moonfed.data import DATASETS, Dataset
from moonfed.data.readers.assemble import assemble
from moonfed.data.readers.npz import as_array, as_name, from_arrays
from moonfed.data.readers.torch_dataset import from_torch
from moonfed.training.settings import DataSettings
from moonfed.training.user_data import reader_options

Rows: TypeAlias = tuple[Any, ...] | TorchDataset[Any]
"""(x, y) or (x, y, party), arrays or tensors, or a torch Dataset of such rows."""

DataLike: TypeAlias = str | PathLike[str] | Dataset | Rows
"""A data set of the catalog by name, a file or folder, a Dataset, or rows."""

MEMORY = ".in-memory"  # stands for the place of rows that lie in no file


class Given(NamedTuple):
    """What a user gave as data: as settings, and as a data set and the labels' own values where it has no place."""

    settings: dict[str, Any]
    data: Dataset | None = None
    classes: Sequence[Any] | None = None


def given(data: DataLike, test: Rows | None, read: DataSettings) -> Given:
    """Take data in any of its forms; read says how rows are held out."""
    if isinstance(data, str | PathLike):
        if test is not None:
            raise UserError("test rows are given as (x, y) where training rows are; for a file, test is a path")
        if data in DATASETS:
            return Given({"dataset": data})
        if isinstance(data, str) and Path(data).name == data and not Path(data).suffix and not Path(data).exists():
            raise unknown("data set", data, DATASETS, "and no such file or folder")
        return Given({"path": str(data)})
    if isinstance(data, Dataset):
        if test is not None:
            raise UserError("a Dataset brings its own test rows; omit test")
        return Given({"path": data.name + MEMORY}, data)
    how = reader_options(read)
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, tuple | list | Mapping):
        made = from_torch(data, test, name="rows", options=how)
        whole = all(name.lstrip("-").isdecimal() for name in made.class_names)
        return Given({"path": "rows" + MEMORY}, made, [int(k) for k in made.class_names] if whole else None)
    held = _arrays(data)
    values = {as_name(value, "the data y"): value for value in held["y"].ravel().tolist()}
    if test is not None:
        held |= {f"{name}_test": value for name, value in _arrays(test).items()}
    made = assemble(from_arrays(held, "the data", how), "arrays" + MEMORY, how)
    return Given({"path": "arrays" + MEMORY}, made, [values[name] for name in made.class_names])


def _arrays(rows: Any) -> dict[str, NDArray[Any]]:
    """Take x, y and whose each row is, if that is given, as arrays."""
    if not isinstance(rows, tuple | list) or len(rows) not in (2, 3):
        raise UserError(
            f"data is (x, y) or (x, y, party), a torch Dataset, a name or a path, got {type(rows).__name__}"
        )
    names = ("x", "y", "party")
    try:
        return {name: _array(part, name) for name, part in zip(names, rows, strict=False)}
    except ValueError as error:  # rows of different lengths
        raise UserError(f"the data cannot be taken as arrays: {short(error)}") from None


def _array(part: Any, name: str) -> NDArray[Any]:
    if name != "x" and isinstance(part, list | tuple):
        return np.array(part, dtype=object)  # numpy would make words of all if one is: of a missing one, too
    return as_array(part)
