"""Gets a data set from the first source that provides it, verifies it and stores it in the cache."""

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from moonfed.core.errors import RunFailed, UserError
from moonfed.core.files import short
from moonfed.core.regular_file import regular_size
from moonfed.data.catalog.cache import (
    cache_folder,
    cache_lock,
    cache_path,
    explain_write_errors,
    is_cached,
    recheck_images,
    store_images,
)
from moonfed.data.catalog.download import md5_of
from moonfed.data.catalog.file_sets import FileEntry, recheck_file, store_file, verify_file
from moonfed.data.catalog.image_sets import ImageArrays, ImageEntry, verify_images
from moonfed.data.catalog.monitor import SourceError, TransferMonitor
from moonfed.data.catalog.sources import Origin, WebSource

BY_ROWS = "SHA-256 of every row"
BY_DIGEST, BY_ARCHIVE, BY_COUNT = "SHA-256 of every image and label", "md5 of the official archive", "row counts only"

Content = ImageArrays | bytes
logger = logging.getLogger(__name__)


class Receipt(NamedTuple):
    """A data set in the cache: its file, its source and how it was verified."""

    path: Path
    source: str
    verified: str
    was_cached: bool


def obtain(origin: Origin, path: Path | None, monitor: TransferMonitor) -> Receipt:
    """Get a data set from the user's path, or from the first of its sources that provides it."""
    entry = origin.entry
    if path is not None:
        _check_path(path, entry.name)
    with cache_lock(entry):
        if is_cached(entry):
            try:
                facts = verify_cached(entry)
                return Receipt(cache_path(entry), facts["source"], facts["verified"], was_cached=True)
            except UserError as error:
                logger.warning("%s", str(error).partition(";")[0])
        if path is not None:
            content, source, verified = _read_path(origin, path, monitor)
        else:
            content, source, verified = _try_sources(origin, monitor)
        file = _store(entry, content, source, verified)
        shutil.rmtree(_download_folder(entry), ignore_errors=True)
    return Receipt(file, source, verified, was_cached=False)


def _check_path(path: Path, name: str) -> None:
    needs = f"--from needs the official archive or folder of {name}"
    try:
        if not path.is_dir():
            regular_size(path)
    except FileNotFoundError:
        raise UserError(f"{needs}, {path} does not exist") from None
    except OSError as error:
        raise UserError(f"{needs}, {path} cannot be read: {short(error)}") from None


def verify_cached(entry: ImageEntry | FileEntry) -> dict[str, str]:
    """Read a data set's cached file in full and verify it; return its source and how it was verified."""
    return recheck_file(entry) if isinstance(entry, FileEntry) else recheck_images(entry)


def cache_state(entry: ImageEntry | FileEntry) -> dict[str, Any]:
    """Describe whether a data set is in the cache, without reading it."""
    path, downloads = cache_path(entry), _download_folder(entry)
    if is_cached(entry):
        return {"state": "here", "path": str(path), "bytes": path.stat().st_size}
    partial = sum(file.stat().st_size for file in downloads.glob("*") if file.is_file())
    return {"state": "begun" if partial else "not here", "path": None, "bytes": partial}


def _verify(entry: ImageEntry | FileEntry, content: Content) -> str | None:
    """Refuse content that is not the data set; return how it was verified, None if rows were only counted."""
    if isinstance(entry, FileEntry):
        assert isinstance(content, bytes)
        verify_file(entry, content)
        return BY_ROWS
    assert isinstance(content, ImageArrays)
    verify_images(entry, content)
    return None if entry.digests is None else BY_DIGEST


def _store(entry: ImageEntry | FileEntry, content: Content, source: str, verified: str) -> Path:
    if isinstance(entry, FileEntry):
        assert isinstance(content, bytes)
        return store_file(entry, content, source, verified)
    assert isinstance(content, ImageArrays)
    return store_images(entry, content, source, verified)


def _read_path(origin: Origin, path: Path, monitor: TransferMonitor) -> tuple[Content, str, str]:
    try:
        content = origin.read(path, monitor)
        verified = _verify(origin.entry, content)
        official = {file.md5 for source in origin.sources if isinstance(source, WebSource) for file in source.files}
        is_official = verified is None and path.is_file() and md5_of(path) in official
    except (SourceError, OSError) as error:
        raise UserError(f"{path} is not {origin.entry.name} in its official form: {error}") from None
    if verified is not None:
        return content, str(path), verified
    if not is_official:
        logger.warning(
            "%s has all rows and classes, but its images cannot be verified: only the official archive has a checksum",
            path,
        )
    return content, str(path), BY_ARCHIVE if is_official else BY_COUNT


def _try_sources(origin: Origin, monitor: TransferMonitor) -> tuple[Content, str, str]:
    entry = origin.entry
    reasons: list[str] = []
    if not origin.sources:
        raise UserError(
            f"{entry.name} has no automatic source; download {origin.by_hand} and name its path with --from"
        )
    for source, following in zip(origin.sources, (*origin.sources[1:], None), strict=True):
        try:
            with _download_folders(entry) as (folder, scratch):
                content = source.read(source.fetch(folder, scratch, monitor), monitor)
            verified = _verify(entry, content)
        except SourceError as error:
            reasons.append(f"{source.title}: {error}")
            if following is not None:
                logger.info("%s; trying %s", reasons[-1], following.title)
            continue
        if verified is not None:
            return content, source.title, verified
        return content, source.title, BY_ARCHIVE if isinstance(source, WebSource) else BY_COUNT
    raise RunFailed(
        f"no source provided {entry.name} ({'; '.join(reasons)}); try again later, or use --from with its official "
        "archive or folder"
    )


@contextmanager
def _download_folders(entry: ImageEntry | FileEntry) -> Iterator[tuple[Path, Path]]:
    """Make a folder for downloads that can be resumed, and in it an empty one for those that cannot."""
    folder = _download_folder(entry)
    scratch = folder / "scratch"
    with explain_write_errors(folder):
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
    try:
        yield folder, scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        with suppress(OSError):  # it stays if it contains a partial download
            folder.rmdir()


def _download_folder(entry: ImageEntry | FileEntry) -> Path:
    return cache_folder() / f"{entry.name}.download"
