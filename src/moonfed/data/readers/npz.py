"""Arrays: .npz files, and what becomes of numbers of any shape."""

import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from moonfed.core.errors import UserError, unknown
from moonfed.core.files import short
from moonfed.data.readers.limits import check_bytes, check_room
from moonfed.data.readers.options import NUMBERS, PICTURES, ReaderOptions
from moonfed.data.readers.raw_rows import Found

Array = NDArray[Any]
LARGEST = 1e38  # what a number of 32 bits holds, and a little less


def read_npz(path: Path, settings: ReaderOptions, labelled: bool = True) -> Found:
    """Read x, y and, where they are there, party, x_test, y_test and party_test of an .npz file."""
    check_room(path, 1.0)
    try:
        with zipfile.ZipFile(path) as packed:
            check_bytes(path.name, sum(member.file_size for member in packed.infolist()))
        with np.load(path) as file:  # arrays alone: an array of Python objects is refused
            held = {name: np.asarray(file[name]) for name in file.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error) as error:
        objects = isinstance(error, ValueError) and "Object arrays" in str(error)
        why = "it holds Python objects, and only plain arrays are read" if objects else short(error)
        raise UserError(f"{path.name} cannot be read as .npz: {why}") from None
    return from_arrays(held, path.name, settings, labelled)


def from_arrays(held: Mapping[str, Array], name: str, settings: ReaderOptions, labelled: bool = True) -> Found:
    """Take rows out of arrays by name: x, y, party and the same with _test."""
    label, party = settings.label or "y", settings.party or "party"
    if settings.party is not None and party not in held:
        raise unknown(f"array of {name}", party, held)
    found = _part(held, name, "x", label if label in held or labelled else None, party)
    has_test = [key for key in ("x_test", f"{label}_test") if key in held]
    if not has_test or not labelled:
        return found
    return replace(found, test=_part(held, name, "x_test", f"{label}_test", f"{party}_test"))


def _part(held: Mapping[str, Array], name: str, inputs: str, label: str | None, party: str) -> Found:
    for wanted in (inputs, label):
        if wanted is not None and wanted not in held:
            raise unknown(f"array of {name}", wanted, held)
    x = _shaped(held[inputs], f"{name} {inputs}")
    labels = None if label is None else _names(held[label], f"{name} {label}", len(x))
    parties = _names(held[party], f"{name} {party}", len(x)) if party in held else None
    where = f"{name} row" if inputs == "x" else f"{name} test row"
    found = Found(
        name,
        PICTURES if is_picture(x) else NUMBERS,
        x,
        labels,
        parties,
        lambda row: f"{where} {row}",
        {"shape": list(x.shape[1:])},
    )
    bad = {row: f"{key} is empty" for key, names in ((party, parties), (label, labels)) for row in _empty(names)}
    if x.dtype.kind == "f":
        flat = x.reshape(len(x), -1)
        bad |= {int(row): f"{inputs} is beyond {LARGEST:g}" for row in np.flatnonzero((np.abs(flat) > LARGEST).any(1))}
        bad |= {int(row): f"{inputs} is not finite" for row in np.flatnonzero(~np.isfinite(flat).all(1))}
    return found.without(bad)


def _shaped(x: Array, what: str) -> Array:
    """Check inputs: pictures become uint8 [row, channel, height, width], all other numbers floats.

    What came in 64 bits stays so until it is standardised: 32 bits cannot tell two seconds of one day apart.
    """
    if x.dtype.kind not in "biuf" or x.ndim < 2:
        raise UserError(f"{what} needs numbers [row, ...] of two axes or more, got {x.dtype} of shape {x.shape}")
    if not x.size:
        raise UserError(f"{what} is empty: its shape is {x.shape}")
    if x.dtype != np.uint8 or x.ndim == 2:
        return x.astype(np.float32 if x.dtype.kind == "f" and x.dtype.itemsize <= 4 else np.float64)
    if x.ndim == 3:
        return x[:, None]
    if x.ndim == 4 and x.shape[1] in (1, 3):
        return x
    if x.ndim == 4 and x.shape[3] in (1, 3):
        return np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    raise UserError(
        f"{what} of uint8 needs pictures [row, height, width], with 1 or 3 channels before or behind, got {x.shape}"
    )


def _names(values: Array, what: str, rows: int) -> list[str]:
    if values.shape != (rows,):
        raise UserError(f"{what} needs one value for each of the {rows} rows, got the shape {values.shape}")
    return [as_name(value, what) for value in values.tolist()]


def _empty(names: list[str] | None) -> list[int]:
    return [row for row, name in enumerate(names or []) if not name]


def as_name(value: Any, what: str) -> str:
    """Name a label or a party: a word or a whole number; nothing where the value is missing."""
    if is_missing(value):
        return ""
    if isinstance(value, bool | int | str | np.integer | np.bool_):
        return str(value)
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    raise UserError(f"{what} needs whole numbers or words, got {value!r:.40}")


def is_missing(value: Any) -> bool:
    """Whether a value stands for none: None, a number that is none, pandas' own mark."""
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas.NA will not even say whether it is itself
        return True


def as_array(value: Any) -> Array:
    """Take numbers as an array, from wherever they are; numpy has no bfloat16."""
    if not isinstance(value, Tensor):
        return np.asarray(value)
    still = value.detach().cpu()
    return (still.float() if still.dtype == torch.bfloat16 else still).numpy()


def is_picture(x: Array) -> bool:
    """Whether an array holds pictures."""
    return x.dtype == np.uint8


def fit(x: Array, axis: int = 1) -> dict[str, Any]:
    """Learn mean and deviation of training rows, for each place of an axis: a column, a channel, a band of pitch."""
    axes = tuple(k for k in range(x.ndim) if k != axis)
    std = x.std(axis=axes, dtype=np.float64)
    varies = x.max(axis=axes) > x.min(axis=axes)  # the deviation of equal numbers is not always 0, but for rounding
    mean = x.mean(axis=axes, dtype=np.float64).tolist()
    return {"axis": axis, "mean": mean, "std": np.where(varies & (std > 0), std, 1.0).tolist()}


def encode(x: Array, details: dict[str, Any]) -> Tensor:
    """Standardise numbers."""
    shape = [-1 if k == details["axis"] else 1 for k in range(x.ndim)]
    mean, std = (np.asarray(details[key], dtype=np.float64).reshape(shape) for key in ("mean", "std"))
    return torch.from_numpy(((x - mean) / std).astype(np.float32))


def check_shape(x: Array, scheme: dict[str, Any], name: str) -> None:
    """Refuse rows of another shape than the training rows'."""
    if list(x.shape[1:]) != scheme["shape"]:
        wanted, came = (
            "x".join(str(n) for n in shape) if len(shape) else "one number" for shape in (scheme["shape"], x.shape[1:])
        )
        raise UserError(f"{name} has rows of {came}, the training rows are {wanted}")
