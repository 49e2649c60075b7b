"""Which reader a path wants."""

from pathlib import Path
from typing import Any

from moonfed.core.errors import UserError
from moonfed.data.own import arrays, table
from moonfed.data.own.found import Found
from moonfed.data.own.reading import Say, not_there
from moonfed.data.own.settings import OwnSettings

KNOWN = "a .csv, .tsv, .parquet or .npz file, a folder of pictures or .wav files by class, a Hugging Face data set"


def read(
    path: Path,
    settings: OwnSettings,
    say: Say,
    scheme: dict[str, Any] | None = None,
    labelled: bool = True,
    may_lack_party: bool = False,
) -> Found:
    """Read the rows at a path; with the scheme of training rows, in agreement with it."""
    if not path.exists():
        raise not_there(path)
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return arrays.read_npz(path, settings, labelled)
    if suffix in table.SUFFIXES:
        return table.as_rows(table.read_csv(path, say), settings, scheme, labelled, may_lack_party)
    raise UserError(f"{path.name} is none of what can be read: {KNOWN}")
