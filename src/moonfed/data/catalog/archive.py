"""Reading members of folders, tar and zip files by name, into memory: nothing is ever unpacked onto the disk.

Only a member of an expected name, of an ordinary kind and of no more than the expected size is read, so a name that
leads elsewhere, a link or a bomb has no effect.
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


class Shelf(Protocol):
    """A folder or an archive that is open for reading."""

    def read(self, name: str, most: int) -> bytes:
        """Read a member of at most so many bytes."""
        ...

    def names(self, folder: str) -> list[str]:
        """List the files of a folder by name, in sorted order."""
        ...


class Folder:
    """A folder on the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, name: str, most: int) -> bytes:
        """Read a file of at most so many bytes."""
        path = self.path / name
        try:
            if not path.is_file():
                raise SourceError(f"{name} is missing")
            if path.stat().st_size > most:
                raise _too_large(name, most)
            return path.read_bytes()
        except OSError as error:
            raise SourceError(f"{name} cannot be read: {short(error)}") from None

    def names(self, folder: str) -> list[str]:
        """List the files of a folder by name, in sorted order."""
        try:
            return sorted(path.name for path in (self.path / folder).iterdir())
        except OSError as error:
            raise SourceError(f"{folder} cannot be read: {short(error)}") from None


class Zip:
    """A zip file, whose members are named from one top folder on."""

    def __init__(self, archive: zipfile.ZipFile, top: str) -> None:
        self.archive = archive
        self.found: dict[str, dict[str, zipfile.ZipInfo]] = {}
        for info in archive.infolist():
            if info.filename.startswith(f"{top}/") and not info.is_dir():
                folder, _, name = info.filename.removeprefix(f"{top}/").rpartition("/")
                self.found.setdefault(folder, {})[name] = info

    def read(self, name: str, most: int) -> bytes:
        """Read a member of at most so many bytes."""
        folder, _, last = name.rpartition("/")
        info = self.found.get(folder, {}).get(last)
        if info is None:
            raise SourceError(f"{name} is missing")
        try:
            with self.archive.open(info) as file:
                return _bounded(name, file, most)
        except ZIP_ERRORS as error:
            raise SourceError(f"{name} cannot be read: {short(error)}") from None

    def names(self, folder: str) -> list[str]:
        """List the files of a folder by name, in sorted order."""
        return sorted(self.found.get(folder, {}))


@contextmanager
def opened(path: Path, top: str) -> Iterator[Shelf]:
    """Open a folder, or a zip file: the top folder itself or what holds it."""
    if path.is_dir():
        yield Folder(path / top if (path / top).is_dir() else path)
        return
    try:
        archive = zipfile.ZipFile(path)
    except ZIP_ERRORS as error:
        raise SourceError(f"it is neither a folder nor a zip file that can be read: {short(error)}") from None
    with archive:
        yield Zip(archive, top)


def read_tar(path: Path | IO[bytes], wanted: Mapping[str, int]) -> dict[str, bytes]:
    """Read members of a tar file on the disk or in memory, each of at most so many bytes."""
    try:
        on_disk = isinstance(path, Path)
        with tarfile.open(path if on_disk else None, "r:*", None if on_disk else path) as archive:
            return _wanted(archive, wanted)
    except TAR_ERRORS as error:
        raise SourceError(f"it is no tar file that can be read: {short(error)}") from None


def read_tar_stream(stream: IO[bytes], wanted: Mapping[str, int]) -> dict[str, bytes]:
    """Read members of a tar file that comes through a pipe."""
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            return _wanted(archive, wanted)
    except TAR_ERRORS as error:
        raise SourceError(f"it holds no tar file that can be read: {short(error)}") from None


def _wanted(archive: tarfile.TarFile, wanted: Mapping[str, int]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    far = 4 * sum(wanted.values()) + (1 << 20)
    for member in archive:
        if member.offset_data > far:
            raise SourceError(f"it holds far more than the {sum(wanted.values()):,} bytes that were expected")
        name = member.name.removeprefix("./")
        if name not in wanted:
            continue
        file = archive.extractfile(member) if member.isreg() else None
        if file is None:
            raise SourceError(f"{name} is a link or no ordinary file")
        found[name] = _bounded(name, file, wanted[name])
        if len(found) == len(wanted):
            break
    for name in wanted:
        if name not in found:
            raise SourceError(f"{name} is missing")
    return found


def _bounded(name: str, file: IO[bytes] | Any, most: int) -> bytes:
    content = file.read(most + 1)
    if len(content) > most:
        raise _too_large(name, most)
    return content


def _too_large(name: str, most: int) -> SourceError:
    return SourceError(f"{name} is larger than {most:,} bytes")
