"""The only source of randomness: every draw is named, and the name decides it."""

import hashlib
import random
from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, contextmanager
from threading import RLock
from typing import Any, cast

import numpy as np
import torch
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray

published_numpy = np.random.RandomState  # NumPy's legacy stream, from which the published partitions were drawn
published_python = random.Random  # the stream from which the published cohorts were drawn

_torch_streams = RLock()


def seed_for(trial: int, *names: str | int) -> int:
    """Turn a trial's seed and the name of a draw into 63 bits, the same on every machine."""
    text = "/".join(str(part) for part in (trial, *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(trial: int, *names: str | int) -> np.random.Generator:
    """Make the NumPy generator of a named draw."""
    return np.random.Generator(np.random.PCG64(seed_for(trial, *names)))


def generators(trial: int, names: Iterable[tuple[str | int, ...]]) -> list[np.random.Generator]:
    """Make the generators of many named draws: the same ones, seeded together."""
    seeds = np.array([seed_for(trial, *own) for own in names], dtype=np.uint64)
    return [np.random.Generator(np.random.PCG64(cast(Any, _SeedWords(words)))) for words in _seed_words(seeds)]


class _SeedWords(ISeedSequence):
    """What NumPy's seed sequence of a number comes to, for a PCG64 generator."""

    def __init__(self, words: NDArray[np.uint64]) -> None:
        self.words = words

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> NDArray[np.uint64]:
        return self.words


def _seed_words(seeds: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Compute SeedSequence(seed).generate_state(4, numpy.uint64) for many seeds at once: [seed, 4].

    The constants and the order are those of O'Neill's seed_seq_fe, which NumPy uses for all generators.
    """
    factor = 0x43B0D7E5

    def hashed(value: NDArray[np.uint32], multiplier: int) -> NDArray[np.uint32]:
        nonlocal factor
        value = value ^ np.uint32(factor)
        factor = factor * multiplier & 0xFFFFFFFF
        value *= np.uint32(factor)
        return value ^ value >> np.uint32(16)

    halves = (seeds & np.uint64(0xFFFFFFFF), seeds >> np.uint64(32), *[np.zeros_like(seeds)] * 2)
    pool = [hashed(half.astype(np.uint32), 0x931E8875) for half in halves]
    for source in range(4):
        for place in range(4):
            if place != source:
                left, right = np.uint32(0xCA01F9DD) * pool[place], hashed(pool[source], 0x931E8875)
                mixed = left - np.uint32(0x4973F715) * right
                pool[place] = mixed ^ mixed >> np.uint32(16)
    factor = 0x8B51F9DD
    words = np.stack([hashed(pool[place % 4], 0x58F38DED) for place in range(8)], 1).astype(np.uint64)
    return np.ascontiguousarray(words[:, ::2] | words[:, 1::2] << np.uint64(32))


def torch_streams_held() -> AbstractContextManager[bool]:
    """Keep other threads from drawing from torch's own streams, for code that saves and restores them itself."""
    return _torch_streams


@contextmanager
def torch_aside(device: torch.device) -> Generator[None]:
    """Put torch's own streams aside and bring them back afterwards; all threads share them, so one at a time."""
    with _torch_streams, torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):  # pyright: ignore[reportUnknownMemberType]
        yield


def seed_torch(key: int, device: torch.device) -> None:
    """Begin torch's streams anew from a key; for use with them put aside."""
    torch.default_generator.manual_seed(key)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(key)


@contextmanager
def torch_seeded(trial: int, *names: str | int) -> Generator[None]:
    """Let torch's layers initialise themselves from a named draw, and leave torch's own stream untouched."""
    cpu = torch.device("cpu")
    with torch_aside(cpu):
        seed_torch(seed_for(trial, *names), cpu)
        yield
