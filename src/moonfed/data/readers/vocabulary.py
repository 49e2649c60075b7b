"""A text as numbers of words: the most frequent words of the training rows, in lower case."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from moonfed.core.errors import UserError

NO_WORD, UNKNOWN, FIRST = 0, 1, 2  # what stands behind the end, what no training row holds, the most frequent word
MOST = 256  # words of a text that are read if nothing else is asked for
_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")


def words_of(text: str) -> list[str]:
    """Split a text into words: letters and digits, with apostrophes between them, in lower case."""
    return [word.replace("\u2019", "'") for word in _WORD.findall(text.lower())]


def fit(texts: Sequence[str], most: int, length: int | None) -> dict[str, Any]:
    """Learn the words of training rows, the most frequent first; long enough for 99 of 100 texts."""
    split = [words_of(text) for text in texts]
    counts = Counter(word for words in split for word in words)
    kept = sorted(counts, key=lambda word: (-counts[word], word))[:most]
    if not kept:
        raise UserError("no training text holds a word: letters or digits")
    usual = int(np.ceil(np.quantile([len(words) for words in split], 0.99)))
    return {"words": kept, "length": length or max(1, min(MOST, usual))}


def encode(texts: Sequence[str], details: dict[str, Any]) -> Tensor:
    """Turn texts into numbers of words: int64 [row, place], cut off or filled up with 0."""
    number = {word: place for place, word in enumerate(details["words"], start=FIRST)}
    length = details["length"]
    made = np.zeros((len(texts), length), dtype=np.int64)
    for row, text in enumerate(texts):
        found = [number.get(word, UNKNOWN) for word in words_of(text)[:length]]
        made[row, : len(found)] = found
    return torch.from_numpy(made)


def count(details: dict[str, Any]) -> int:
    """How many words are told apart, all unknown ones being one."""
    return len(details["words"]) + 1
