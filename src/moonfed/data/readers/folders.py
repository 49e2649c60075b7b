"""Lists the files of folders CLASS/FILE or PARTY/CLASS/FILE."""

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moonfed.core.errors import UserError
from moonfed.core.files import short
from moonfed.core.regular_file import regular_size
from moonfed.data.readers.options import ReaderOptions
from moonfed.data.readers.raw_rows import BadRow, RawRows

PARTY_FOLDERS = "folder"  # the value of --party if the outer folders are parties
_NOT_DATA = {"thumbs.db", "desktop.ini", "__macosx"}


@dataclass(frozen=True)
class MediaFile:
    """One image or audio clip: a path or its bytes, with its location, label and party."""

    source: Path | bytes
    place: str
    label: str | None
    party: str | None


def reject_columns(name: str, options: ReaderOptions) -> None:
    """Refuse options that name columns: a folder has none."""
    for flag, value in (("--label", options.label), ("--text", options.text)):
        if value is not None:
            raise UserError(f"{name} is a folder, its subfolders name the classes; omit {flag} {value}")
    if options.party not in (None, PARTY_FOLDERS):
        raise UserError(
            f"{name} is a folder: use --party {PARTY_FOLDERS} for PARTY/CLASS/FILE, got --party {options.party}"
        )


def list_media(
    folder: Path, base: Path, suffixes: Sequence[str], options: ReaderOptions, labelled: bool = True
) -> tuple[list[MediaFile], list[BadRow]]:
    """List the media files CLASS/FILE or PARTY/CLASS/FILE in the order of their names; other files are bad rows.

    If no labels are needed, the files may also be in the folder itself.
    """
    media: list[MediaFile] = []
    bad: list[BadRow] = []
    files, folders = _list_entries(folder)
    loose = [path for path in files if path.suffix.lower() in suffixes]
    if loose and not labelled:
        return [MediaFile(path, _place(path, base), None, None) for path in loose], bad
    bad += [BadRow(_place(path, base), "is in no class folder") for path in loose]
    if options.party != PARTY_FOLDERS:
        for class_folder in folders:
            _list_class(class_folder, base, suffixes, None, media, bad)
        return media, bad
    for party in folders:
        files, classes = _list_entries(party)
        bad += [BadRow(_place(path, base), "is in no class folder") for path in files]
        for class_folder in classes:
            _list_class(class_folder, base, suffixes, party.name, media, bad)
    return media, bad


def _list_class(
    folder: Path, base: Path, suffixes: Sequence[str], party: str | None, media: list[MediaFile], bad: list[BadRow]
) -> None:
    files, deeper = _list_entries(folder)
    for path in files:
        if path.suffix.lower() in suffixes:
            media.append(MediaFile(path, _place(path, base), folder.name, party))
        else:
            bad.append(BadRow(_place(path, base), f"none of {', '.join(suffixes)}"))
    for path in deeper:
        advice = "" if party else f"; if the outer folders are parties, use --party {PARTY_FOLDERS}"
        bad.append(BadRow(f"{_place(path, base)}/", f"a folder inside a class folder{advice}"))
    if not files and not deeper:
        bad.append(BadRow(f"{_place(folder, base)}/", "an empty folder"))


def media_rows(
    media: Sequence[MediaFile],
    kind: str,
    content: NDArray[np.generic],
    name: str,
    schema: dict[str, Any],
    bad: Sequence[BadRow],
    unreadable: dict[int, str],
    notes: tuple[str, ...],
) -> RawRows:
    """Make rows of decoded media files; the unreadable ones become bad rows."""
    parties = [file.party or "" for file in media] if any(file.party for file in media) else None
    labels = [file.label or "" for file in media] if all(file.label is not None for file in media) else None
    places = [file.place for file in media]
    rows = RawRows(name, kind, content, labels, parties, lambda row: places[row], schema, tuple(bad), notes)
    return rows.without(unreadable)


def media_source(source: Path | bytes) -> Path | BytesIO:
    """Return what a decoder may open: bytes as a file, or the path of a regular file."""
    if isinstance(source, bytes):
        return BytesIO(source)
    regular_size(source)
    return source


def unreadable_reason(error: Exception) -> str:
    """Say in a few words why a media file cannot be decoded."""
    return f"unreadable: {short(error)[:80]}"


def nothing_readable_error(
    name: str, what: str, media: Sequence[MediaFile], bad: Sequence[BadRow], unreadable: dict[int, str]
) -> UserError:
    """Make the error for a folder without a single readable file, with the first reasons."""
    rows = [BadRow(media[k].place, reason) for k, reason in unreadable.items()] + list(bad)
    return UserError(f"{name} has no readable {what}" + "".join(f"; {row}" for row in rows[:3]))


def contains_any(folder: Path, suffixes: Sequence[str], depth: int = 4) -> bool:
    """Whether a folder contains a file with one of the suffixes, up to a few levels deep."""
    files, folders = _list_entries(folder)
    if any(path.suffix.lower() in suffixes for path in files):
        return True
    return depth > 1 and any(contains_any(path, suffixes, depth - 1) for path in folders)


def subfolders(folder: Path) -> list[Path]:
    """List the folders in a folder by name, without hidden ones."""
    return _list_entries(folder)[1]


def _list_entries(folder: Path) -> tuple[list[Path], list[Path]]:
    """List the files and the folders in a folder by name, without hidden ones."""
    try:
        entries = sorted(p for p in folder.iterdir() if not p.name.startswith(".") and p.name.lower() not in _NOT_DATA)
        return [p for p in entries if not p.is_dir()], [p for p in entries if p.is_dir()]
    except OSError as error:
        raise UserError(f"{folder} cannot be read: {short(error)}") from None


def _place(path: Path, base: Path) -> str:
    return path.relative_to(base).as_posix().encode(errors="backslashreplace").decode()
