"""Turns any torch.utils.data.Dataset into a data set."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from moonfed.core.errors import UserError
from moonfed.core.files import short
from moonfed.data.dataset import Dataset
from moonfed.data.readers.assemble import assemble, log_summary
from moonfed.data.readers.limits import ReadProgress
from moonfed.data.readers.npz import as_array, as_name, from_arrays
from moonfed.data.readers.options import ReaderOptions


def from_torch(
    dataset: Any,
    test: Any = None,
    party: Sequence[Any] | None = None,
    test_party: Sequence[Any] | None = None,
    name: str = "data",
    words: int = 0,
    options: ReaderOptions = ReaderOptions(),  # noqa: B008 (frozen)
) -> Dataset:
    """Make a data set of a torch data set whose items are (input, label) or (input, label, party).

    Inputs are images (Pillow images or uint8 tensors), numbers that are used unchanged, or word ids from 1 to `words`,
    with 0 for padding. Labels and parties are integers or strings. Without a test data set, rows of each party are
    held out.
    """
    arrays = _read(dataset, party, name, "")
    if test is not None:
        arrays |= {f"{key}_test": value for key, value in _read(test, test_party, f"{name} test", "test ").items()}
    rows = from_arrays(arrays, name, options)
    data = assemble(rows, name, replace(options, standardise=False))
    log_summary(rows, data, options)
    if not words:
        return data
    for inputs in (data.inputs, data.test_inputs):
        if inputs.dim() != 2 or inputs.min() < 0 or inputs.max() > words:
            raise UserError(f"{name} needs word ids [position] from 0 to {words} in each item")
    return replace(data, inputs=data.inputs.long(), test_inputs=data.test_inputs.long(), words=words, encoder="text")


def _read(dataset: Any, party: Sequence[Any] | None, name: str, part: str) -> dict[str, NDArray[Any]]:
    if isinstance(dataset, Mapping) or not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise UserError(
            f"{name} needs len() and items by number, as a map-style torch data set, got {_type_of(dataset)}"
        )
    if party is not None and not isinstance(party, Iterable):
        raise UserError(f"{name} needs a party for each of its {len(dataset)} items, got {_type_of(party)}")
    inputs: list[NDArray[Any]] = []
    labels: list[str] = []
    parties: list[str] = []
    progress = ReadProgress(name, "items")
    for row in range(len(dataset)):
        item, place = dataset[row], f"{name} {part}item {row}"
        if not isinstance(item, tuple | list) or len(item) not in (2, 3):
            raise UserError(f"{place} needs (input, label) or (input, label, party), got {_type_of(item)}")
        inputs.append(_input_array(item[0], place))
        labels.append(_as_text(item[1], place))
        if len(item) == 3:
            parties.append(_as_text(item[2], place))
        if inputs[-1].shape != inputs[0].shape:
            raise UserError(
                f"{place} has the shape {inputs[-1].shape}, the first has {inputs[0].shape}; "
                "all items need the same shape"
            )
        progress.update(row + 1, len(dataset))
    if not inputs:
        raise UserError(f"{name} is empty")
    if party is not None:
        parties = [_as_text(value, f"{name} party {row}") for row, value in enumerate(party)]
    if parties and len(parties) != len(inputs):
        raise UserError(f"{name} needs a party for each of its {len(inputs)} items, got {len(parties)}")
    x = np.stack(inputs)
    arrays: dict[str, NDArray[Any]] = {"x": x if x.ndim > 1 else x[:, None], "y": np.array(labels)}
    return arrays | ({"party": np.array(parties)} if parties else {})


def _input_array(value: Any, place: str) -> NDArray[Any]:
    """Turn an input into an array, Pillow images into [channel, height, width]."""
    try:
        array = as_array(value)
    except (TypeError, ValueError, NotImplementedError) as error:  # lists of two lengths, sparse and meta tensors
        raise UserError(f"{place} needs a dense array of numbers as input: {short(error)}") from None
    return array.transpose(2, 0, 1) if array.ndim == 3 and hasattr(value, "getbands") else array


def _as_text(value: Any, place: str) -> str:
    if isinstance(value, torch.Tensor | np.generic) and getattr(value, "ndim", 0) == 0:
        value = value.item()
    if isinstance(value, bool | int | float | str):
        return as_name(value, f"the label or party of {place}")
    raise UserError(f"{place} needs an integer or a string as label or party, got {_type_of(value)}")


def _type_of(value: Any) -> str:
    return f"{type(value).__name__} of {len(value)}" if isinstance(value, tuple | list) else type(value).__name__
