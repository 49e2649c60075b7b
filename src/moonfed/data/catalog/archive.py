"""Reads members of folders, tar and zip files by name into memory; nothing is unpacked onto the disk.

A member is read only if it has an expected name, is a regular file and is no larger than expected. Path traversal,
links and decompression bombs therefore have no effect.
"""

import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

from moonfed.core.files import short
from moonfed.data.catalog.monitor import SourceError

TAR_ERRORS = (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, OSError)
ZIP_ERRORS = (zipfile.BadZipFile, EOFError, zlib.error, RuntimeError, NotImplementedError, OSError)


class ArchiveReader(Protocol):
    """An open folder or archive."""

    def read(self, name: str, max_bytes: int) -> bytes:
        """Read a member of at most max_bytes."""
        ...

    def names(self, folder: str) -> list[str]:
        """List the file names in a folder, sorted."""
        ...


class FolderReader:
    """Reads files of a folder on the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, name: str, max_bytes: int) -> bytes:
        """Read a file of at most max_bytes."""
        path = self.path / name
        try:
            if not path.is_file():
                raise SourceError(f"{name} is missing")
            if path.stat().st_size > max_bytes:
                raise _too_large(name, max_bytes)
            return path.read_bytes()
        except OSError as error:
            raise SourceError(f"{name} cannot be read: {short(error)}") from None

    def names(self, folder: str) -> list[str]:
        """List the file names in a folder, sorted."""
        try:
            return sorted(path.name for path in (self.path / folder).iterdir())
        except OSError as error:
            raise SourceError(f"{folder} cannot be read: {short(error)}") from None


class ZipReader:
    """Reads members of a zip file by their path below one top folder."""

    def __init__(self, archive: zipfile.ZipFile, top: str) -> None:
        self.archive = archive
        self.members: dict[str, dict[str, zipfile.ZipInfo]] = {}
        for info in archive.infolist():
            if info.filename.startswith(f"{top}/") and not info.is_dir():
                folder, _, name = info.filename.removeprefix(f"{top}/").rpartition("/")
                self.members.setdefault(folder, {})[name] = info

    def read(self, name: str, max_bytes: int) -> bytes:
        """Read a member of at most max_bytes."""
        folder, _, last = name.rpartition("/")
        info = self.members.get(folder, {}).get(last)
        if info is None:
            raise SourceError(f"{name} is missing")
        try:
            with self.archive.open(info) as file:
                return _read_bounded(name, file, max_bytes)
        except ZIP_ERRORS as error:
            raise SourceError(f"{name} cannot be read: {short(error)}") from None

    def names(self, folder: str) -> list[str]:
        """List the file names in a folder, sorted."""
        return sorted(self.members.get(folder, {}))


@contextmanager
def open_archive(path: Path, top: str) -> Iterator[ArchiveReader]:
    """Open a zip file, the top folder itself, or the folder that contains it."""
    if path.is_dir():
        yield FolderReader(path / top if (path / top).is_dir() else path)
        return
    try:
        archive = zipfile.ZipFile(path)
    except ZIP_ERRORS as error:
        raise SourceError(f"it is neither a folder nor a readable zip file: {short(error)}") from None
    with archive:
        yield ZipReader(archive, top)


def read_tar(path: Path | IO[bytes], limits: Mapping[str, int]) -> dict[str, bytes]:
    """Read members of a tar file on the disk or in memory; limits maps each name to its largest size in bytes."""
    try:
        on_disk = isinstance(path, Path)
        with tarfile.open(path if on_disk else None, "r:*", None if on_disk else path) as archive:
            return _read_members(archive, limits)
    except TAR_ERRORS as error:
        raise SourceError(f"it is not a readable tar file: {short(error)}") from None


def read_tar_stream(stream: IO[bytes], limits: Mapping[str, int]) -> dict[str, bytes]:
    """Read members of a tar file that arrives through a pipe."""
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            return _read_members(archive, limits)
    except TAR_ERRORS as error:
        raise SourceError(f"it does not contain a readable tar file: {short(error)}") from None


def _read_members(archive: tarfile.TarFile, limits: Mapping[str, int]) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    expected = sum(limits.values())
    for member in archive:
        if member.offset_data > 4 * expected + (1 << 20):
            raise SourceError(f"it is much larger than the expected {expected:,} bytes")
        name = member.name.removeprefix("./")
        if name not in limits:
            continue
        file = archive.extractfile(member) if member.isreg() else None
        if file is None:
            raise SourceError(f"{name} is a link or another special file, a regular file was expected")
        contents[name] = _read_bounded(name, file, limits[name])
        if len(contents) == len(limits):
            break
    for name in limits:
        if name not in contents:
            raise SourceError(f"{name} is missing")
    return contents


def _read_bounded(name: str, file: IO[bytes] | Any, max_bytes: int) -> bytes:
    content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise _too_large(name, max_bytes)
    return content


def _too_large(name: str, max_bytes: int) -> SourceError:
    return SourceError(f"{name} is larger than {max_bytes:,} bytes")
