"""Which reader a path wants."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from moonfed.core.errors import UserError
from moonfed.core.files import short
from moonfed.data.readers import arrow
from moonfed.data.readers import audio as sound
from moonfed.data.readers import csv_table as table
from moonfed.data.readers import images as pictures
from moonfed.data.readers import npz as arrays
from moonfed.data.readers.folders import Clip, check_flags, clips_in, folders_in, has_any
from moonfed.data.readers.limits import Say, not_there
from moonfed.data.readers.options import ReaderOptions
from moonfed.data.readers.raw_rows import Found, left_out

KNOWN = "a .csv, .tsv, .parquet or .npz file, a folder of pictures or .wav files by class, a Hugging Face data set"
MEDIA = ((pictures.SUFFIXES, pictures.read_pictures), (sound.SUFFIXES, sound.read_sounds))


def read(
    path: Path,
    settings: ReaderOptions,
    say: Say,
    scheme: dict[str, Any] | None = None,
    labelled: bool = True,
    may_lack_party: bool = False,
) -> Found:
    """Read the rows at a path; with the scheme of training rows, in agreement with it."""
    try:
        if not path.exists():
            raise not_there(path)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {short(error)}") from None
    rest = (labelled, may_lack_party)
    if path.is_dir():
        if arrow.is_hugging_face(path):
            return arrow.read_hugging_face(path, settings, scheme, say, *rest)
        return _folder(path, settings, scheme, say, labelled)
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return arrays.read_npz(path, settings, labelled)
    if suffix in table.SUFFIXES:
        return table.as_rows(table.read_csv(path, say), settings, scheme, *rest)
    if suffix in arrow.SUFFIXES:
        return table.as_rows(arrow.read_parquet(path, say), settings, scheme, *rest)
    for suffixes, reader in MEDIA:
        if suffix in suffixes and not labelled:
            return reader([Clip(path, path.name, None, None)], [], path.name, settings, scheme, say)
    raise UserError(f"{path.name} is none of what can be read: {KNOWN}")


def _folder(path: Path, settings: ReaderOptions, scheme: dict[str, Any] | None, say: Say, labelled: bool) -> Found:
    """Read a folder of pictures or sounds by class; folders train and test in it are what they are called."""
    check_flags(path.name, settings)
    suffixes, reader = next((media for media in MEDIA if has_any(path, media[0])), (None, None))
    if suffixes is None or reader is None:
        known = ", ".join(suffix for suffixes, _ in MEDIA for suffix in suffixes)
        raise UserError(f"{path} holds no folders of pictures or sounds by class ({known})")

    def part(folder: Path, agreed: dict[str, Any] | None) -> Found:
        clips, bad = clips_in(folder, path, suffixes, settings, labelled)
        name = path.name if folder == path else f"{path.name}/{folder.name}"
        return reader(clips, bad, name or str(path), settings, agreed, say)

    parted = [path / name for name in ("train", "test")]
    if not (labelled and all(folder.is_dir() for folder in parted)):
        return part(path, scheme)
    train = part(parted[0], scheme)
    others = [folder.name for folder in folders_in(path) if folder not in parted and has_any(folder, suffixes)]
    notes = (*train.notes, *left_out(path.name, "folder", others))
    return replace(train, notes=notes, test=part(parted[1], train.scheme))
