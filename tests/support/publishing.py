"""A small CIFAR-10 that is published on this machine, and what is left of a command that gets it."""

import os
import resource
import socket
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from commands import Answer, Attempt, contents
from official import (
    ImageArrays,
    cifar_files,
    described,
    noise,
    small,
    tarred,
)

from moonfed.data.catalog.cache import cache_folder, load_images
from moonfed.data.catalog.cifar import read_cifar10
from moonfed.data.catalog.download import RetryPolicy
from moonfed.data.catalog.image_sets import IMAGE_SETS, ImageEntry
from moonfed.data.catalog.sources import ORIGINS, Origin, Source, WebSource

QUICK = RetryPolicy(tries=3, timeout=5.0, pause=0.001)
CIFAR = noise("cifar10", 50, 20)
ARCHIVE = tarred(cifar_files("cifar10", CIFAR))
PLAIN = noise("cifar10", 50, 20, plain=True)
PLAIN_ARCHIVE = tarred(cifar_files("cifar10", PLAIN))  # much smaller than the file it becomes
NAME = "cifar-10-python.tar.gz"


def publish(entry: ImageEntry, read: Any, *sources: Source) -> None:
    """Put a small data set in the place of one with the same name, in this process."""
    ORIGINS[entry.name] = Origin(entry, read, sources)
    IMAGE_SETS[entry.name] = entry


def web(url: str, archive: bytes = ARCHIVE) -> WebSource:
    return WebSource((described(url, archive),), read_cifar10, QUICK)


def publish_cifar(url: str) -> None:
    publish(small("cifar10", CIFAR), read_cifar10, web(url))


def closed_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/{NAME}"


def got(answer: Answer, arrays: ImageArrays = CIFAR, name: str = "cifar10") -> str:
    """Check that a data set has arrived, and return what was said about it."""
    assert answer.code == 0, answer
    data = load_images(IMAGE_SETS[name])
    assert data.inputs.dtype == torch.uint8
    assert data.labels.dtype == torch.int64
    for tensor, array in zip((data.inputs, data.labels, data.test_inputs, data.test_labels), arrays, strict=True):
        assert np.array_equal(tensor.numpy(), array)
    assert left() == {f"{name}.safetensors"}
    return answer.out


def left() -> set[str]:
    """Everything in the cache but the locks."""
    return {name for name in contents(cache_folder()) if not name.endswith(".lock")}


def failed(answer: Answer, code: int = 1) -> str:
    """Check that a command ended badly and well-mannered, and return its last line."""
    assert answer.code == code, answer
    last = answer.err.splitlines()[-1]
    assert last.startswith("moonfed: ")
    assert answer.err.count("moonfed: ") == 1
    assert "Traceback" not in answer.err
    return last


def publish_there(given: tuple[str, str, int]) -> None:
    """Publish an archive in another process, which can write no file beyond a size if it is given one: a full disk."""
    url, folder, most = given
    os.environ |= {"MOONFED_DATA": folder, "no_proxy": "*"}
    plain = url.endswith("plain.tar.gz")
    archive, arrays = (PLAIN_ARCHIVE, PLAIN) if plain else (ARCHIVE, CIFAR)
    publish(small("cifar10", arrays), read_cifar10, web(url, archive))
    if most:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def attempt(url: str, most: int = 0) -> Attempt:
    return Attempt("data", "get", "cifar10", prepare=publish_there, given=(url, os.environ["MOONFED_DATA"], most))


def await_part(part: Path, size: int) -> None:
    ends = time.monotonic() + 60
    while not part.exists() or part.stat().st_size < size:
        assert time.monotonic() < ends
        time.sleep(0.002)
