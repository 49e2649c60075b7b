"""Chooses the reader for a path."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from moonfed.core.errors import UserError
from moonfed.core.files import short
from moonfed.data.readers import arrow, audio, csv_table, images, npz
from moonfed.data.readers.folders import MediaFile, contains_any, list_media, reject_columns, subfolders
from moonfed.data.readers.limits import missing_path_error
from moonfed.data.readers.options import ReaderOptions
from moonfed.data.readers.raw_rows import RawRows, ignored_notes

SUPPORTED = "a .csv, .tsv, .parquet or .npz file, a folder of images or .wav files by class, a Hugging Face data set"
MEDIA_READERS = ((images.SUFFIXES, images.read_images), (audio.SUFFIXES, audio.read_audio))


def read_rows(
    path: Path,
    options: ReaderOptions,
    schema: dict[str, Any] | None = None,
    labelled: bool = True,
    may_lack_party: bool = False,
) -> RawRows:
    """Read the rows at a path; given the schema of training rows, in agreement with it."""
    try:
        str(path).encode()  # it is recorded in files
        if not path.exists():
            raise missing_path_error(path)
    except UnicodeEncodeError:
        raise UserError(f"{str(path)!a} has a name that is not UTF-8; rename it") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {short(error)}") from None
    if path.is_dir():
        if arrow.is_hugging_face(path):
            return arrow.read_hugging_face(path, options, schema, labelled, may_lack_party)
        return _read_folder(path, options, schema, labelled)
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return npz.read_npz(path, options, labelled)
    if suffix in csv_table.SUFFIXES:
        return csv_table.table_rows(csv_table.read_csv(path), options, schema, labelled, may_lack_party)
    if suffix in arrow.SUFFIXES:
        table = arrow.read_parquet(path, options.ignore)
        return csv_table.table_rows(table, options, schema, labelled, may_lack_party)
    for suffixes, reader in MEDIA_READERS:
        if suffix in suffixes and not labelled:
            return reader([MediaFile(path, path.name, None, None)], [], path.name, options, schema)
    raise UserError(f"{path.name} cannot be read; supported are {SUPPORTED}")


def _read_folder(path: Path, options: ReaderOptions, schema: dict[str, Any] | None, labelled: bool) -> RawRows:
    """Read a folder of images or audio clips by class; subfolders train and test become training and test rows."""
    reject_columns(path.name, options)
    suffixes, reader = next((media for media in MEDIA_READERS if contains_any(path, media[0])), (None, None))
    if suffixes is None or reader is None:
        supported = ", ".join(suffix for suffixes, _ in MEDIA_READERS for suffix in suffixes)
        raise UserError(f"{path} has no class folders of images or audio clips ({supported})")

    def read_part(folder: Path, shared: dict[str, Any] | None) -> RawRows:
        files, bad = list_media(folder, path, suffixes, options, labelled)
        name = path.name if folder == path else f"{path.name}/{folder.name}"
        return reader(files, bad, name or str(path), options, shared)

    parts = [path / name for name in ("train", "test")]
    if not (labelled and all(folder.is_dir() for folder in parts)):
        return read_part(path, schema)
    train = read_part(parts[0], schema)
    others = [folder.name for folder in subfolders(path) if folder not in parts and contains_any(folder, suffixes)]
    notes = (*train.notes, *ignored_notes(path.name, "folder", others))
    return replace(train, notes=notes, test=read_part(parts[1], train.schema))
