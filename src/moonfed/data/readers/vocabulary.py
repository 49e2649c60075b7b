"""Encodes texts as word ids; the vocabulary is the most frequent words of the training rows, in lower case."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from moonfed.core.errors import UserError

PADDING, UNKNOWN_WORD, FIRST_WORD = 0, 1, 2  # word ids; the most frequent word has the id 2
MAX_DEFAULT_LENGTH = 256  # words read per text if the user sets no length
_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")


def tokenize(text: str) -> list[str]:
    """Split a text into lower-case words: letters and digits, with apostrophes inside."""
    return [word.replace("\u2019", "'") for word in _WORD.findall(text.lower())]


def fit(texts: Sequence[str], size: int, length: int | None) -> dict[str, Any]:
    """Learn the most frequent words of the training rows, and the length that covers 99 % of the texts."""
    tokenized = [tokenize(text) for text in texts]
    counts = Counter(word for words in tokenized for word in words)
    words = sorted(counts, key=lambda word: (-counts[word], word))[:size]
    if not words:
        raise UserError("no training text has a word (letters or digits)")
    usual = int(np.ceil(np.quantile([len(words) for words in tokenized], 0.99)))
    return {"words": words, "length": length or max(1, min(MAX_DEFAULT_LENGTH, usual))}


def encode(texts: Sequence[str], details: dict[str, Any]) -> Tensor:
    """Turn texts into word ids: int64 [row, position], truncated or padded with 0."""
    ids = {word: k for k, word in enumerate(details["words"], start=FIRST_WORD)}
    length = details["length"]
    encoded = np.full((len(texts), length), PADDING, dtype=np.int64)
    for row, text in enumerate(texts):
        words = tokenize(text)[:length]
        encoded[row, : len(words)] = [ids.get(word, UNKNOWN_WORD) for word in words]
    return torch.from_numpy(encoded)


def vocabulary_size(details: dict[str, Any]) -> int:
    """Return the number of different word ids, without the padding; all unknown words share one."""
    return len(details["words"]) + 1
