"""Any torch.utils.data.Dataset as a data set."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from moonfed.core.errors import UserError
from moonfed.data.dataset import Dataset
from moonfed.data.readers.assemble import assemble
from moonfed.data.readers.limits import Pace, Say
from moonfed.data.readers.npz import as_array, as_name, from_arrays
from moonfed.data.readers.options import ReaderOptions


def from_torch(
    dataset: Any,
    test: Any = None,
    party: Sequence[Any] | None = None,
    test_party: Sequence[Any] | None = None,
    name: str = "data",
    words: int = 0,
    settings: ReaderOptions = ReaderOptions(),  # noqa: B008 (frozen)
    say: Say = lambda line: None,
) -> Dataset:
    """Make a data set of a torch data set whose items are (input, label) or (input, label, party).

    Inputs are pictures (of Pillow, or uint8 tensors), numbers that are taken as they are, or, where words says how many
    there are, numbers of words with 0 for none. Labels and parties are whole numbers or words. Without a test data set
    some rows of each party are held out.
    """
    held = _read(dataset, party, name, "", say)
    if test is not None:
        held |= {f"{key}_test": value for key, value in _read(test, test_party, f"{name} test", "test ", say).items()}
    found = from_arrays(held, name, settings)
    made = assemble(found, name, replace(settings, standardise=False), say)
    if not words:
        return made
    for inputs in (made.inputs, made.test_inputs):
        if inputs.dim() != 2 or inputs.min() < 0 or inputs.max() > words:
            raise UserError(f"{name} needs numbers of words [place] from 0 to {words} in each item")
    return replace(made, inputs=made.inputs.long(), test_inputs=made.test_inputs.long(), words=words, encoder="text")


def _read(dataset: Any, party: Sequence[Any] | None, name: str, part: str, say: Say) -> dict[str, NDArray[Any]]:
    inputs: list[NDArray[Any]] = []
    labels: list[str] = []
    parties: list[str] = []
    pace = Pace(say, name, "items")
    for row in range(len(dataset)):
        item = dataset[row]
        if not isinstance(item, tuple | list) or len(item) not in (2, 3):
            raise UserError(f"{name} {part}item {row} needs (input, label) or (input, label, party), got {_what(item)}")
        inputs.append(_array(item[0]))
        labels.append(_word(item[1], f"{name} {part}item {row}"))
        if len(item) == 3:
            parties.append(_word(item[2], f"{name} {part}item {row}"))
        if inputs[-1].shape != inputs[0].shape:
            raise UserError(
                f"{name} {part}item {row} has the shape {inputs[-1].shape}, the first has {inputs[0].shape}; "
                "make them equal in the data set"
            )
        pace.at(row + 1, len(dataset))
    if not inputs:
        raise UserError(f"{name} is empty")
    if party is not None:
        parties = [_word(value, f"{name} party {row}") for row, value in enumerate(party)]
    if parties and len(parties) != len(inputs):
        raise UserError(f"{name} needs a party for each of its {len(inputs)} items, got {len(parties)}")
    x = np.stack(inputs)
    held: dict[str, NDArray[Any]] = {"x": x if x.ndim > 1 else x[:, None], "y": np.array(labels)}
    return held | ({"party": np.array(parties)} if parties else {})


def _array(value: Any) -> NDArray[Any]:
    """Take an input as an array, pictures of Pillow as [channel, height, width]."""
    array = as_array(value)
    return array.transpose(2, 0, 1) if array.ndim == 3 and hasattr(value, "getbands") else array


def _word(value: Any, place: str) -> str:
    if isinstance(value, torch.Tensor | np.generic) and getattr(value, "ndim", 0) == 0:
        value = value.item()
    if isinstance(value, bool | int | float | str):
        return as_name(value, f"{place} as label or party")
    raise UserError(f"{place} needs a whole number or a word as label or party, got {_what(value)}")


def _what(value: Any) -> str:
    return f"{type(value).__name__} of {len(value)}" if isinstance(value, tuple | list) else type(value).__name__
