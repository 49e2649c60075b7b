"""Reads .npz files, and encodes arrays of numbers of any shape."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from moonfed.core.errors import UserError, unknown
from moonfed.core.types import MAX_NUMBER
from moonfed.data.readers.limits import check_width
from moonfed.data.readers.npz_archive import read_arrays
from moonfed.data.readers.options import IMAGES, NUMBERS, ReaderOptions
from moonfed.data.readers.raw_rows import RawRows

Array = NDArray[Any]
MAX_CHARACTER, SURROGATES = 0x10FFFF, (0xD800, 0xDFFF)  # of Unicode; halves of characters, which are no text


def read_npz(path: Path, options: ReaderOptions, labelled: bool = True) -> RawRows:
    """Read the arrays x, y and, if present, party, x_test, y_test and party_test of an .npz file."""
    names = ("x", options.label or "y", options.party or "party")
    arrays = read_arrays(path, [*names, *(f"{name}_test" for name in names)])
    return from_arrays(arrays, path.name, options, labelled)


def from_arrays(arrays: Mapping[str, Array], name: str, options: ReaderOptions, labelled: bool = True) -> RawRows:
    """Take rows from named arrays: x, y, party, and the same names with _test."""
    label, party = options.label or "y", options.party or "party"
    if options.party is not None and party not in arrays:
        raise unknown("array", party, arrays, f"in {name}")
    rows = _select(arrays, name, "x", label if label in arrays or labelled else None, party)
    has_test = any(key in arrays for key in ("x_test", f"{label}_test"))
    if not has_test or not labelled:
        return rows
    return replace(rows, test=_select(arrays, name, "x_test", f"{label}_test", f"{party}_test"))


def _select(arrays: Mapping[str, Array], name: str, inputs: str, label: str | None, party: str) -> RawRows:
    for key in (inputs, label):
        if key is not None and key not in arrays:
            raise unknown("array", key, arrays, f"in {name}")
    x = _check_inputs(arrays[inputs], f"{name} {inputs}")
    labels = None if label is None else _names(arrays[label], f"{name} {label}", len(x))
    parties = _names(arrays[party], f"{name} {party}", len(x)) if party in arrays else None
    place = f"{name} row" if inputs == "x" else f"{name} test row"
    rows = RawRows(
        name,
        IMAGES if is_image(x) else NUMBERS,
        x,
        labels,
        parties,
        lambda row: f"{place} {row}",
        {"shape": list(x.shape[1:])},
    )
    bad = {row: f"{key} is empty" for key, names in ((party, parties), (label, labels)) for row in _empty(names)}
    if x.dtype.kind == "f":
        flat = x.reshape(len(x), -1)
        too_large = np.flatnonzero((np.abs(flat) > MAX_NUMBER).any(1))
        bad |= {int(row): f"{inputs} is beyond {MAX_NUMBER:g}" for row in too_large}
        bad |= {int(row): f"{inputs} is not finite" for row in np.flatnonzero(~np.isfinite(flat).all(1))}
    return rows.without(bad)


def _check_inputs(x: Array, what: str) -> Array:
    """Return images as uint8 [row, channel, height, width], all other numbers as floats.

    Numbers of 64 bits keep their precision until they are standardised: float32 merges the seconds of a timestamp.
    """
    if x.dtype.kind not in "biuf" or x.ndim < 2:
        raise UserError(f"{what} needs numbers [row, ...] with two axes or more, got {x.dtype} of shape {x.shape}")
    if not x.size:
        raise UserError(f"{what} is empty: its shape is {x.shape}")
    check_width(what, x[0].size)
    if x.dtype != np.uint8 or x.ndim == 2:
        with np.errstate(over="ignore"):  # what float64 cannot hold becomes infinite, which is refused
            return x.astype(np.float32 if x.dtype.kind == "f" and x.dtype.itemsize <= 4 else np.float64)
    if x.ndim == 3:
        return x[:, None]
    if x.ndim == 4 and x.shape[1] in (1, 3):
        return x
    if x.ndim == 4 and x.shape[3] in (1, 3):
        return np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    raise UserError(
        f"{what} of uint8 needs images [row, height, width], with 1 or 3 channels first or last, got {x.shape}"
    )


def _names(values: Array, what: str, rows: int) -> list[str]:
    if values.shape != (rows,):
        raise UserError(f"{what} needs one value for each of the {rows} rows, got the shape {values.shape}")
    if values.dtype.kind == "U" and values.dtype.itemsize:
        codes = np.ascontiguousarray(values).view(values.dtype.str.replace("U", "u")[:2] + "4")
        if ((codes > MAX_CHARACTER) | ((codes >= SURROGATES[0]) & (codes <= SURROGATES[1]))).any():
            raise UserError(f"{what} has text that is not Unicode; write it again")
    name_of = partial(as_name, what=what)
    if values.dtype != object:  # one type, of which equal values have equal names; there are fewer names than rows
        name_of = cache(name_of)
    return [name_of(value) for value in values.tolist()]


def _empty(names: list[str] | None) -> list[int]:
    return [row for row, name in enumerate(names or []) if not name]


def as_name(value: Any, what: str) -> str:
    """Turn a label or party into text: a string or an integer; a missing value becomes an empty string."""
    if is_missing(value):
        return ""
    if isinstance(value, bool | int | str | np.integer | np.bool_):
        return str(value)
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise UserError(f"{what} has bytes that are not UTF-8: {value!r:.40}") from None
    raise UserError(f"{what} needs integers or strings, got {value!r:.40}")


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN or pandas.NA."""
    try:
        return value is None or bool(value != value)
    except TypeError:  # the truth of a comparison with pandas.NA is undefined
        return True


def as_array(value: Any) -> Array:
    """Turn numbers into an array; bfloat16 becomes float32, since numpy does not have it."""
    if not isinstance(value, Tensor):
        return np.asarray(value)
    tensor = value.detach().cpu()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def is_image(x: Array) -> bool:
    """Whether an array contains images."""
    return x.dtype == np.uint8


def fit(x: Array, axis: int = 1) -> dict[str, Any]:
    """Learn mean and deviation of training rows per position of an axis: a column, a channel, a mel band."""
    axes = tuple(k for k in range(x.ndim) if k != axis)
    std = x.std(axis=axes, dtype=np.float64)
    varies = x.max(axis=axes) > x.min(axis=axes)  # the computed deviation of equal numbers is not always 0
    mean = x.mean(axis=axes, dtype=np.float64).tolist()
    return {"axis": axis, "mean": mean, "std": np.where(varies & (std > 0), std, 1.0).tolist()}


def encode(x: Array, details: dict[str, Any]) -> Tensor:
    """Standardise numbers."""
    shape = [-1 if k == details["axis"] else 1 for k in range(x.ndim)]
    mean, std = (np.asarray(details[key], dtype=np.float64).reshape(shape) for key in ("mean", "std"))
    return torch.from_numpy(((x - mean) / std).astype(np.float32))


def check_shape(x: Array, schema: dict[str, Any], name: str) -> None:
    """Refuse rows whose shape differs from that of the training rows."""
    if list(x.shape[1:]) != schema["shape"]:
        expected, actual = (
            "x".join(str(n) for n in shape) if len(shape) else "one number" for shape in (schema["shape"], x.shape[1:])
        )
        raise UserError(f"{name} has rows of shape {actual}, the training rows have {expected}")
