"""Data sets other than images: each is one file in the cache, with its source in a second file."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from moonfed.core.errors import UserError
from moonfed.core.files import read_json, write_json, write_whole
from moonfed.data.catalog.cache import cache_path, explain_write_errors, get_again_error, is_cached, not_cached_error
from moonfed.data.catalog.monitor import SourceError
from moonfed.data.catalog.spoken_digits import load_spoken_digits, recordings_digest
from moonfed.data.dataset import Dataset
from moonfed.data.readers import ReaderOptions, read_dataset


def sha256_of(content: bytes) -> str:
    """Hash a file's bytes."""
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True)
class FileEntry:
    """A data set in the catalog: its file, what it contains and how it is loaded; every row names its party."""

    name: str
    file: str
    train: int  # rows
    test: int
    classes: int
    parties: int
    shape: tuple[int, ...]  # of an input
    size: int  # bytes of the file
    sha256: str
    load: Callable[[Path], Dataset]
    digest: Callable[[bytes], str] = sha256_of


def _table(settings: ReaderOptions, batch: int, name: str) -> Callable[[Path], Dataset]:
    """Read a table in the same way as a user's file."""
    return lambda path: replace(read_dataset(path, settings), name=name, batch=batch)


_ENTRIES = (
    FileEntry(
        "flights",
        "flights.csv",
        19_421,
        4_855,
        3,
        15,
        (14,),
        721_665,
        "599ec94477e37ec8795c0e403b9864d8e26889eab5ec97dc5d698d1b62c7881b",
        _table(ReaderOptions(label="arrival", party="carrier"), 64, "flights"),
    ),
    FileEntry(
        "sentiment",
        "sentiment.csv",
        18_962,
        4_741,
        3,
        4,
        (30,),
        2_814_665,
        "942cd1ecb5f49d7b667131a32b3dc954b4e45c04615c4e14410dd7c82d54841c",
        _table(
            ReaderOptions(label="sentiment", party="site", text="text", vocabulary=4000, length=30), 64, "sentiment"
        ),
    ),
    FileEntry(
        "spoken-digits",
        "spoken-digits.safetensors",
        2_700,
        300,
        10,
        6,
        (1, 32, 32),
        21_021_000,
        "4bad61269f00d40f963e1ae349f7a250023aa6cb39ec4c83cee7da5652536db6",
        load_spoken_digits,
        recordings_digest,
    ),
)
FILE_SETS = {entry.name: entry for entry in _ENTRIES}


def load_file(entry: FileEntry) -> Dataset:
    """Load a data set from the cache."""
    if not is_cached(entry):
        raise not_cached_error(entry.name)
    return entry.load(cache_path(entry))


def verify_file(entry: FileEntry, content: bytes) -> None:
    """Refuse a file whose rows differ from those of an entry."""
    digest = entry.digest(content)
    if digest != entry.sha256:
        raise SourceError(
            f"its rows differ from those of {entry.name}: SHA-256 is {digest[:12]}..., expected {entry.sha256[:12]}..."
        )


def store_file(entry: FileEntry, content: bytes, source: str, verified: str) -> Path:
    """Write a verified file and its source to the cache."""
    path = cache_path(entry)
    with explain_write_errors(path):
        write_whole(path, content)
        write_json(_metadata_path(entry), {"source": source, "verified": verified})
    return path


def recheck_file(entry: FileEntry) -> dict[str, str]:
    """Read a cached file in full, verify it like a new download, and return its source and how it was verified."""
    if not is_cached(entry):
        raise not_cached_error(entry.name)
    try:
        verify_file(entry, cache_path(entry).read_bytes())
        return {k: str(v) for k, v in read_json(_metadata_path(entry)).items()}
    except (SourceError, OSError) as error:
        raise get_again_error(entry.name, f"{cache_path(entry)} is damaged: {error}") from None
    except UserError as error:
        raise get_again_error(entry.name, str(error)) from None


def _metadata_path(entry: FileEntry) -> Path:
    path = cache_path(entry)
    return path.with_name(f".{path.name}.json")
