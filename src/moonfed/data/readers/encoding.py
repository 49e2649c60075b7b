"""An encoding turns rows into inputs: learned from training rows, stored beside a run, applied to later rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from moonfed.core.errors import UserError
from moonfed.data.dataset import Dataset
from moonfed.data.readers import columns, npz, vocabulary
from moonfed.data.readers.options import AUDIO, FORMER_KINDS, IMAGES, NUMBERS, TABLE, TEXT, ReaderOptions
from moonfed.data.readers.raw_rows import RawRows

ENCODING_VERSION = 1


@dataclass(frozen=True)
class Encoding:
    """What is needed to read rows in the same way as the training rows."""

    kind: str
    label: str | None
    party: str | None
    text: str | None
    classes: tuple[str, ...]
    parties: tuple[str, ...]
    schema: dict[str, Any]  # kinds of columns, or the shape of inputs
    details: dict[str, Any]  # learned: means, deviations, categories, words

    def as_json(self) -> dict[str, Any]:
        """Return the stored form."""
        return {
            "version": ENCODING_VERSION,
            "kind": self.kind,
            "label": self.label,
            "party": self.party,
            "text": self.text,
            "classes": list(self.classes),
            "parties": list(self.parties),
            "scheme": self.schema,
            "details": self.details,
        }

    @property
    def options(self) -> ReaderOptions:
        """The options to read later rows with."""
        return ReaderOptions(label=self.label, party=self.party, text=self.text)


def read_encoding(value: Mapping[str, Any]) -> Encoding:
    """Make an encoding from its stored form."""
    if value.get("version") != ENCODING_VERSION:
        raise UserError(f"this encoding has version {value.get('version')}, this moonfed reads {ENCODING_VERSION}")
    try:
        kind: str = value["kind"]
        return Encoding(
            FORMER_KINDS.get(kind, kind),
            value["label"],
            value["party"],
            value["text"],
            tuple(value["classes"]),
            tuple(value["parties"]),
            value["scheme"],
            value["details"],
        )
    except (KeyError, TypeError) as error:
        raise UserError(f"this encoding is damaged: {error}") from None


def encoding_of(data: Dataset) -> Encoding:
    """Return the encoding of a data set, or make one for rows of its shape; classes without names are numbered."""
    if data.encoding is not None:
        return read_encoding(data.encoding)
    kind = IMAGES if data.inputs.dtype == torch.uint8 else NUMBERS
    names = data.class_names or tuple(str(k) for k in range(data.classes))
    shape = list(data.inputs.shape[1:])
    channels = shape[0] if shape else 0
    mean, std = list(data.mean) or [0.0] * channels, list(data.std) or [1.0] * channels
    return Encoding(kind, None, None, None, names, (), {"shape": shape}, {"axis": 1, "mean": mean, "std": std})


def fit(train: RawRows, options: ReaderOptions) -> dict[str, Any]:
    """Learn means, deviations, categories and words from training rows only."""
    content = train.content
    if train.kind == TABLE:
        assert isinstance(content, dict)
        return columns.fit(content, train.schema["kinds"], train.name)
    if train.kind == TEXT:
        assert isinstance(content, list)
        return vocabulary.fit(content, options.vocabulary, options.length)
    assert isinstance(content, np.ndarray)
    if not options.standardise and train.kind == NUMBERS:
        return {"axis": 1, "mean": [0.0] * content.shape[1], "std": [1.0] * content.shape[1]}
    return npz.fit(content, axis=2 if train.kind == AUDIO else 1)


def encode(rows: RawRows, encoding: Encoding) -> Tensor:
    """Turn rows into inputs; images stay uint8, since the data set carries their mean and deviation."""
    content = rows.content
    if encoding.kind == TABLE:
        assert isinstance(content, dict)
        return columns.encode(content, encoding.details)
    if encoding.kind == TEXT:
        assert isinstance(content, list)
        return vocabulary.encode(content, encoding.details)
    assert isinstance(content, np.ndarray)
    npz.check_shape(content, encoding.schema, rows.name)
    if encoding.kind == IMAGES:
        return torch.from_numpy(content)
    return npz.encode(content, encoding.details)


def describe(encoding: Encoding) -> str:
    """Describe the inputs in a few words: "images of 1x8x8"."""
    if encoding.kind == TABLE:
        return columns.describe(encoding.details)
    if encoding.kind == TEXT:
        return f"{len(encoding.details['words']):,} words, at most {encoding.details['length']} per text"
    shape = "x".join(str(n) for n in encoding.schema["shape"])
    what = {IMAGES: "images of", AUDIO: "spectrograms of"}.get(encoding.kind, "numbers")
    return f"{what} {shape}"
