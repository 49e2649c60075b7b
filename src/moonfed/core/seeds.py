"""The only source of randomness: every draw is named, and the name decides it."""

import hashlib
import random
from collections.abc import Generator
from contextlib import contextmanager
from threading import RLock

import numpy as np
import torch

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
