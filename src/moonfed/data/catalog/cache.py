"""The cache: one file per data set, written atomically, with a digest that is checked on every read."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np
import platformdirs
import torch

from moonfed.core.errors import RunFailed, UserError
from moonfed.core.files import open_lock, read_tensors, short, tensor_bytes, write_whole
from moonfed.core.types import Tensors
from moonfed.data.catalog.image_sets import ImageArrays, ImageEntry, verify_images
from moonfed.data.catalog.monitor import SourceError
from moonfed.data.dataset import Dataset

CACHE_FORMAT = "1"


class CacheEntry(Protocol):
    """A data set that has a file in the cache."""

    @property
    def name(self) -> str:
        """The data set's name."""
        ...

    @property
    def file(self) -> str:
        """The name of its file."""
        ...


def cache_folder() -> Path:
    """Return the folder named by MOONFED_DATA if it is set, otherwise the user's cache folder."""
    chosen = os.environ.get("MOONFED_DATA")
    return Path(chosen).expanduser() if chosen else platformdirs.user_cache_path("moonfed", appauthor=False)


def cache_path(entry: CacheEntry) -> Path:
    """Return the path of a data set's file."""
    return cache_folder() / entry.file


def is_cached(entry: CacheEntry) -> bool:
    """Whether the cache has a data set's file; the file is not read."""
    try:
        return cache_path(entry).exists()
    except OSError as error:
        raise UserError(
            f"cannot look into {cache_folder()}: {short(error)}; set MOONFED_DATA to another folder"
        ) from None


def load_images(entry: ImageEntry) -> Dataset:
    """Load an image data set from the cache."""
    tensors, _ = _read(entry)
    return Dataset(
        name=entry.name,
        inputs=tensors["train_images"],
        labels=tensors["train_labels"],
        test_inputs=tensors["test_images"],
        test_labels=tensors["test_labels"],
        classes=entry.classes,
        mean=entry.mean,
        std=entry.std,
        augmentation=entry.augmentation,
        batch=entry.batch,
        encoder=entry.encoder,
    )


def store_images(entry: ImageEntry, images: ImageArrays, source: str, verified: str) -> Path:
    """Write verified images to the cache."""
    path = cache_path(entry)
    tensors = {k: torch.from_numpy(np.require(v, requirements=["C", "W"])) for k, v in images._asdict().items()}
    tensors |= {k: v.long() for k, v in tensors.items() if k.endswith("_labels")}
    facts = {"format": CACHE_FORMAT, "source": source, "verified": verified}
    with explain_write_errors(path):
        write_whole(path, tensor_bytes(path.name, tensors, facts))
    return path


def recheck_images(entry: ImageEntry) -> dict[str, str]:
    """Read a cached file in full, verify it like a new download, and return its source and how it was verified."""
    tensors, facts = _read(entry)
    arrays = {k: v.to(torch.uint8).numpy() for k, v in tensors.items()}
    try:
        verify_images(entry, ImageArrays(**arrays))
    except SourceError as error:
        raise get_again_error(entry.name, f"{cache_path(entry)} is damaged: {error}") from None
    return facts


@contextmanager
def cache_lock(entry: CacheEntry) -> Iterator[None]:
    """Keep other processes from getting the same data set; the system releases the lock when this process ends."""
    path = cache_folder() / f".{entry.name}.lock"
    with explain_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock = open_lock(path)
        except BlockingIOError:
            raise RunFailed(f"another process is getting {entry.name}; wait for it") from None
    with lock:
        yield


@contextmanager
def explain_write_errors(path: Path) -> Iterator[None]:
    """Turn a failure to write to the cache into an error of one line."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        advice = "free some space, then repeat the command" if full else "set MOONFED_DATA to another folder"
        raise RunFailed(f"cannot write {path}: {short(error)}; {advice}") from None


def not_cached_error(name: str) -> UserError:
    """Make the error for a data set that is not in the cache."""
    return UserError(f"{name} is not on this machine yet; get it with: moonfed data get {name}")


def get_again_error(name: str, problem: str) -> UserError:
    """Make the error for a cached file that cannot be used."""
    return UserError(f"{problem}; get it again with: moonfed data get {name}")


def _read(entry: ImageEntry) -> tuple[Tensors, dict[str, str]]:
    path = cache_path(entry)
    if not is_cached(entry):
        raise not_cached_error(entry.name)
    try:
        tensors, facts = read_tensors(path)
    except UserError as error:
        raise get_again_error(entry.name, str(error)) from None
    if facts.get("format") != CACHE_FORMAT or set(tensors) != set(ImageArrays._fields):
        raise get_again_error(entry.name, f"{path} was written by another version of moonfed")
    return tensors, facts
