"""Reads arrays of an .npz file that may be hostile: sizes are compared before anything is decompressed."""

import math
import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from moonfed.core.errors import UserError
from moonfed.core.files import short
from moonfed.data.readers.limits import check_file, check_memory

MAX_RATIO, RATIO_FREE_BYTES = 200, 1_000_000_000  # a large array that shrinks further is a decompression bomb
MAX_LISTED = 20  # names of other arrays that an error lists
ENCRYPTED = 0x41  # flags of a member of a zip file
_ZIP_ERRORS = (OSError, EOFError, KeyError, RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error)
_HEADER_ERRORS = (
    *(ValueError, EOFError, OverflowError, TypeError, SyntaxError, RecursionError),
    *(MemoryError, tokenize.TokenError),  # the parser's own limits
)


class _Header(NamedTuple):
    """What an array says about itself."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def read_arrays(path: Path, wanted: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Read the wanted arrays that a file has; under other names it has empty ones, so that an error can list them."""
    check_file(path, 1.0)
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            headers = {name: _read_header(archive, members[name], path.name) for name in wanted if name in members}
            check_memory(path.name, sum(header.nbytes for header in headers.values()))
            others = [name for name in members if name not in headers][:MAX_LISTED]
            empty: dict[str, NDArray[Any]] = {name: np.empty(0) for name in others}
            return empty | {name: _read_array(archive, members[name]) for name in headers}
    except UserError:
        raise
    except (*_ZIP_ERRORS, *_HEADER_ERRORS) as error:
        raise UserError(f"{path.name} cannot be read as .npz: {short(error)}") from None


def _read_header(archive: zipfile.ZipFile, member: zipfile.ZipInfo, file_name: str) -> _Header:
    """Read what an array says about itself, and refuse what its member of the archive cannot hold."""
    place = f"{file_name} cannot be read as .npz: {member.filename.removesuffix('.npy')}"
    if member.flag_bits & ENCRYPTED:
        raise UserError(f"{place} is encrypted; save it without a password")
    with archive.open(member) as file:
        try:
            header = _parse_header(file)
        except _HEADER_ERRORS as error:
            raise UserError(f"{place} has a broken header: {short(error)}") from None
        stored = member.file_size - file.tell()
    if header.dtype.hasobject:
        raise UserError(f"{place}: it contains Python objects, only plain arrays are supported")
    if not header.dtype.itemsize or min(header.shape, default=1) < 0:
        raise UserError(f"{place} has the type {header.dtype} and the shape {header.shape}, which is no array")
    if header.nbytes > stored:
        raise UserError(f"{place} is {header.nbytes:,} bytes by its shape {header.shape}, the file has {stored:,}")
    if stored > RATIO_FREE_BYTES and stored > MAX_RATIO * member.compress_size:
        raise UserError(
            f"{place} grows from {member.compress_size:,} to {stored:,} bytes, which looks like a decompression bomb; "
            "save it with numpy.savez"
        )
    return header


def _parse_header(file: IO[bytes]) -> _Header:
    version = npy.read_magic(file)
    if version == (1, 0):
        shape, _, dtype = npy.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, _, dtype = npy.read_array_header_2_0(file)
    else:
        raise ValueError(f"version {version[0]}.{version[1]} of the format, 1.0 and 2.0 are read")
    return _Header(shape, dtype)


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(member) as file:
        return np.asarray(npy.read_array(file))  # refuses arrays of Python objects
