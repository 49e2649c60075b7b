"""How rows became inputs, as a value: learned from training rows, kept beside a run, applied to rows to come."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from moonfed.core.errors import UserError
from moonfed.data.dataset import Dataset
from moonfed.data.readers import columns
from moonfed.data.readers import npz as arrays
from moonfed.data.readers import vocabulary as words
from moonfed.data.readers.options import NUMBERS, PICTURES, SOUND, TABLE, TEXT, ReaderOptions
from moonfed.data.readers.raw_rows import Found

VERSION = 1


@dataclass(frozen=True)
class Encoding:
    """What a model must know to read data like that it was trained on."""

    kind: str
    label: str | None
    party: str | None
    text: str | None
    classes: tuple[str, ...]
    parties: tuple[str, ...]
    scheme: dict[str, Any]
    details: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """Give the form in which it is kept."""
        return {"version": VERSION} | asdict(self) | {"classes": list(self.classes), "parties": list(self.parties)}

    @property
    def settings(self) -> ReaderOptions:
        """How rows to come are to be read."""
        return ReaderOptions(label=self.label, party=self.party, text=self.text)


def read_encoding(value: Mapping[str, Any]) -> Encoding:
    """Take an encoding from its kept form."""
    if value.get("version") != VERSION:
        raise UserError(f"this encoding has version {value.get('version')}, this moonfed reads {VERSION}")
    try:
        held: dict[str, Any] = {name: value[name] for name in Encoding.__dataclass_fields__}
        held |= {name: tuple(value[name]) for name in ("classes", "parties")}
        return Encoding(**held)
    except (KeyError, TypeError) as error:
        raise UserError(f"this encoding is damaged: {error}") from None


def encoding_of(data: Dataset) -> Encoding:
    """Say how rows are read that are to be like those of a data set; classes without names are numbered."""
    if data.encoding is not None:
        return read_encoding(data.encoding)
    kind = PICTURES if data.inputs.dtype == torch.uint8 else NUMBERS
    names = data.class_names or tuple(str(k) for k in range(data.classes))
    shape = list(data.inputs.shape[1:])
    none = len(shape) and shape[0]
    mean, std = list(data.mean) or [0.0] * none, list(data.std) or [1.0] * none
    return Encoding(kind, None, None, None, names, (), {"shape": shape}, {"axis": 1, "mean": mean, "std": std})


def fit(train: Found, settings: ReaderOptions) -> dict[str, Any]:
    """Learn from training rows alone: means, deviations, categories, words."""
    content = train.content
    if train.kind == TABLE:
        assert isinstance(content, dict)
        return columns.fit(content, train.scheme["kinds"], train.name)
    if train.kind == TEXT:
        assert isinstance(content, list)
        return words.fit(content, settings.vocabulary, settings.length)
    assert isinstance(content, np.ndarray)
    if not settings.standardise and train.kind == NUMBERS:
        return {"axis": 1, "mean": [0.0] * content.shape[1], "std": [1.0] * content.shape[1]}
    return arrays.fit(content, axis=2 if train.kind == SOUND else 1)


def encode(found: Found, encoding: Encoding) -> Tensor:
    """Turn rows into inputs; pictures stay as they are, their mean and deviation go with the data set."""
    content = found.content
    if encoding.kind == TABLE:
        assert isinstance(content, dict)
        return columns.encode(content, encoding.details)
    if encoding.kind == TEXT:
        assert isinstance(content, list)
        return words.encode(content, encoding.details)
    assert isinstance(content, np.ndarray)
    arrays.check_shape(content, encoding.scheme, found.name)
    if encoding.kind == PICTURES:
        return torch.from_numpy(content)
    return arrays.encode(content, encoding.details)


def told(encoding: Encoding) -> str:
    """Say what the inputs are made of."""
    if encoding.kind == TABLE:
        return columns.told(encoding.details)
    if encoding.kind == TEXT:
        return f"{len(encoding.details['words']):,} words, at most {encoding.details['length']} a text"
    shape = "x".join(str(n) for n in encoding.scheme["shape"])
    what = {PICTURES: "pictures of", SOUND: "spectrograms of"}.get(encoding.kind, "numbers")
    return f"{what} {shape}"
