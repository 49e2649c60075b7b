"""Getting a data set: from the first place that gives it, verified, into the cache."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from moonfed.core.errors import RunFailed, UserError
from moonfed.data.catalog.cache import cache_folder, held, is_here, path_of, recheck, store, writing
from moonfed.data.catalog.download import md5_of
from moonfed.data.catalog.file_sets import FileEntry, recheck_file, store_file, verify_file
from moonfed.data.catalog.image_sets import Entry, Pictures, verify
from moonfed.data.catalog.monitor import SourceError, Watch
from moonfed.data.catalog.sources import Origin, Web

BY_ROWS = "SHA-256 of every row"
BY_DIGEST, BY_ARCHIVE, BY_COUNT = "SHA-256 of every picture and label", "md5 of the official archive", "row counts only"


Content = Pictures | bytes


class Receipt(NamedTuple):
    """What has been got."""

    path: Path
    source: str
    verified: str
    before: bool  # whether it was here already


def obtain(origin: Origin, given: Path | None, watch: Watch) -> Receipt:
    """Get a data set from a path of the user's, or from the first of its sources that gives it."""
    entry = origin.entry
    if given is not None and not given.exists():
        raise UserError(f"--from needs the official archive or folder of {entry.name}, there is no {given}")
    with held(entry):
        if is_here(entry):
            try:
                facts = checked(entry)
                return Receipt(path_of(entry), facts["source"], facts["verified"], before=True)
            except UserError as error:
                watch.said(str(error).partition(";")[0])
        if given is not None:
            pictures, source, verified = _from_path(origin, given, watch)
        else:
            pictures, source, verified = _from_sources(origin, watch)
        path = _stored(entry, pictures, source, verified)
        shutil.rmtree(_downloads(entry), ignore_errors=True)
    return Receipt(path, source, verified, before=False)


def checked(entry: Entry | FileEntry) -> dict[str, str]:
    """Read what is in the cache of a data set in full, and verify it."""
    return recheck_file(entry) if isinstance(entry, FileEntry) else recheck(entry)


def _verified(entry: Entry | FileEntry, content: Content) -> str | None:
    """Refuse what is not the data set; say how it is known to be, unless rows were only counted."""
    if isinstance(entry, FileEntry):
        assert isinstance(content, bytes)
        verify_file(entry, content)
        return BY_ROWS
    assert isinstance(content, Pictures)
    verify(entry, content)
    return None if entry.digests is None else BY_DIGEST


def _stored(entry: Entry | FileEntry, content: Content, source: str, verified: str) -> Path:
    if isinstance(entry, FileEntry):
        assert isinstance(content, bytes)
        return store_file(entry, content, source, verified)
    assert isinstance(content, Pictures)
    return store(entry, content, source, verified)


def state_of(entry: Entry | FileEntry) -> dict[str, Any]:
    """Say whether a data set is here, without reading it."""
    path, downloads = path_of(entry), _downloads(entry)
    if is_here(entry):
        return {"state": "here", "path": str(path), "bytes": path.stat().st_size}
    begun = sum(file.stat().st_size for file in downloads.glob("*") if file.is_file())
    return {"state": "begun" if begun else "not here", "path": None, "bytes": begun}


def _from_path(origin: Origin, given: Path, watch: Watch) -> tuple[Content, str, str]:
    try:
        pictures = origin.read(given, watch)
        by = _verified(origin.entry, pictures)
        known = {file.md5 for source in origin.sources if isinstance(source, Web) for file in source.files}
        whole = by is None and given.is_file() and md5_of(given) in known
    except (SourceError, OSError) as error:
        raise UserError(f"{given} is not {origin.entry.name} in its official form: {error}") from None
    if by is not None:
        return pictures, str(given), by
    if not whole:
        watch.said(
            f"the rows and classes in {given} are complete, but whether every picture is the official one cannot be "
            "checked: only the official archive has a checksum"
        )
    return pictures, str(given), BY_ARCHIVE if whole else BY_COUNT


def _from_sources(origin: Origin, watch: Watch) -> tuple[Content, str, str]:
    entry = origin.entry
    reasons: list[str] = []
    if not origin.sources:
        raise UserError(f"{entry.name} cannot be got by itself; bring {origin.by_hand} and say where it is with --from")
    for source, following in zip(origin.sources, (*origin.sources[1:], None), strict=True):
        try:
            with _folders(entry) as (folder, passing):
                pictures = source.read(source.bring(folder, passing, watch), watch)
            by = _verified(entry, pictures)
        except SourceError as error:
            reasons.append(f"{source.title}: {error}")
            if following is not None:
                watch.said(f"{reasons[-1]}; trying {following.title}")
            continue
        if by is not None:
            return pictures, source.title, by
        return pictures, source.title, BY_ARCHIVE if isinstance(source, Web) else BY_COUNT
    raise RunFailed(
        f"{entry.name} could not be got ({'; '.join(reasons)}); try again later, or use --from with its official "
        "archive or folder"
    )


@contextmanager
def _folders(entry: Entry | FileEntry) -> Iterator[tuple[Path, Path]]:
    """Make a folder for what is fetched in pieces, and in it an empty one for what cannot be continued."""
    folder = _downloads(entry)
    passing = folder / "passing"
    with writing(folder):
        shutil.rmtree(passing, ignore_errors=True)
        passing.mkdir(parents=True)
    try:
        yield folder, passing
    finally:
        shutil.rmtree(passing, ignore_errors=True)
        with suppress(OSError):  # it is kept if something is in it that can be continued
            folder.rmdir()


def _downloads(entry: Entry | FileEntry) -> Path:
    return cache_folder() / f"{entry.name}.download"
