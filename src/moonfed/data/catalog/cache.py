"""The cache: one file a data set, written whole, with a digest that is checked whenever it is read."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import numpy as np
import platformdirs
import torch

from moonfed.core.errors import RunFailed, UserError
from moonfed.core.files import read_tensors, short, tensor_bytes, write_whole
from moonfed.core.types import Tensors
from moonfed.data.catalog.image_sets import Entry, Pictures, verify
from moonfed.data.catalog.monitor import SourceError
from moonfed.data.dataset import Dataset

FORMAT = "1"


def cache_folder() -> Path:
    """Where data sets lie: MOONFED_DATA if it is set, else the user's cache folder."""
    own = os.environ.get("MOONFED_DATA")
    return Path(own).expanduser() if own else platformdirs.user_cache_path("moonfed", appauthor=False)


class Named(Protocol):
    """A data set with a file in the cache."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def file(self) -> str:
        """What its file is called."""
        ...


def path_of(entry: Named) -> Path:
    """Name the file of a data set."""
    return cache_folder() / entry.file


def is_here(entry: Named) -> bool:
    """Whether the cache has a file of a data set; it is not read."""
    try:
        return path_of(entry).exists()
    except OSError as error:
        raise UserError(
            f"cannot look into {cache_folder()}: {short(error)}; set MOONFED_DATA to another folder"
        ) from None


def load(entry: Entry) -> Dataset:
    """Load a data set from the cache."""
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
        recipe=entry.recipe,
        batch=entry.batch,
        encoder=entry.encoder,
    )


def store(entry: Entry, pictures: Pictures, source: str, verified: str) -> Path:
    """Write verified pictures to the cache."""
    path = path_of(entry)
    tensors = {k: torch.from_numpy(np.require(v, requirements=["C", "W"])) for k, v in pictures._asdict().items()}
    tensors |= {k: v.long() for k, v in tensors.items() if k.endswith("_labels")}
    facts = {"format": FORMAT, "source": source, "verified": verified}
    with writing(path):
        write_whole(path, tensor_bytes(path.name, tensors, facts))
    return path


def recheck(entry: Entry) -> dict[str, str]:
    """Read a cached file in full, verify it as if it had just come, and return how it was verified and from where."""
    tensors, facts = _read(entry)
    arrays = {k: v.to(torch.uint8).numpy() for k, v in tensors.items()}
    try:
        verify(entry, Pictures(**arrays))
    except SourceError as error:
        raise again(entry.name, f"{path_of(entry)} is damaged: {error}") from None
    return facts


@contextmanager
def held(entry: Named) -> Iterator[None]:
    """Keep other processes from getting the same data set; the system lets go when this one dies, however it dies."""
    path = cache_folder() / f".{entry.name}.lock"
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("w")
    with lock:
        with suppress(ImportError):
            import fcntl

            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunFailed(f"another process is getting {entry.name}; wait for it") from None
        yield


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say in one line why a file of the cache cannot be written."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        advice = "free some space, then give the same command again" if full else "set MOONFED_DATA to another folder"
        raise RunFailed(f"cannot write {path}: {short(error)}; {advice}") from None


def _read(entry: Entry) -> tuple[Tensors, dict[str, str]]:
    path = path_of(entry)
    if not is_here(entry):
        raise UserError(f"{entry.name} is not on this machine yet; get it with: moonfed data get {entry.name}")
    try:
        tensors, facts = read_tensors(path)
    except UserError as error:
        raise again(entry.name, str(error)) from None
    if facts.get("format") != FORMAT or set(tensors) != set(Pictures._fields):
        raise again(entry.name, f"{path} was written by another version of moonfed")
    return tensors, facts


def again(name: str, problem: str) -> UserError:
    """Make the error for a file that is of no use any more."""
    return UserError(f"{problem}; get it again with: moonfed data get {name}")
