"""Rows that are read by an encoding from elsewhere: what two sites need to mean the same by a row."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from moonfed.core.errors import UserError
from moonfed.data.dataset import Dataset
from moonfed.data.readers.assemble import dataset_of, name_of, strange
from moonfed.data.readers.dispatch import read
from moonfed.data.readers.encoding import Encoding, read_encoding, told
from moonfed.data.readers.limits import Say
from moonfed.data.readers.options import NUMBERS, PICTURES, SOUND, TABLE, TEXT, ReaderOptions
from moonfed.data.readers.raw_rows import Found, clear

MOST = 10_000_000  # numbers that one row may become, as a bound on what a stranger can ask for
NAME = 10_000  # characters of a name


class Unfit(UserError):
    """Rows that cannot be used: for who has them the whole story, for everybody else a few plain words."""

    def __init__(self, whole: str, plain: str) -> None:
        super().__init__(whole)
        self.plain = plain


def looked_at(path: str | Path, settings: ReaderOptions, say: Say = lambda line: None) -> str:
    """Read rows before anybody has said how they become inputs, and say what is there; bad ones are refused."""
    found = clear(read(Path(path), settings, say), settings.skip_bad_rows)
    if not len(found):
        raise UserError(f"{found.name} has no rows that can be used")
    for note in found.notes:
        say(note)
    return f"{found.name}: {len(found):,} rows, {len(set(found.labels or []))} classes"


def read_by(known: Encoding, path: str | Path, settings: ReaderOptions, say: Say = lambda line: None) -> Dataset:
    """Read rows as those were read from which an encoding was learned; all of them are to train on."""
    try:
        found = _read(known, Path(path), settings, say)
    except UserError as error:
        if isinstance(error, Unfit):
            raise
        raise Unfit(str(error), "its rows cannot be read as this run needs them") from None
    data = dataset_of(name_of(str(path)), found, found.take([]), replace(known, party=None, parties=()))
    say(f"{found.name}: {len(found):,} rows, {told(known)}, {len(set(found.labels or []))} of {data.classes} classes")
    return data


def _read(known: Encoding, path: Path, settings: ReaderOptions, say: Say) -> Found:
    own = replace(settings, text=settings.text or known.text)
    found = replace(read(path, own, say, known.scheme), parties=None, test=None)
    if found.kind != known.kind:
        what = f"{found.kind}, and this run is on {known.kind}"
        raise Unfit(f"{found.name} holds {what}", f"its rows are {what}")
    bad = strange(found, known.classes, ())
    try:
        found = clear(found.without(bad), settings.skip_bad_rows)
    except UserError as error:
        plain = f"{len(bad)} of its rows are of classes that this run does not have" if bad else "it has bad rows"
        raise Unfit(str(error), plain) from None
    if not len(found):
        raise Unfit(f"{found.name} has no rows that can be used", "it has no rows that can be used")
    for note in found.notes:
        say(note)
    return found


def checked(value: Mapping[str, Any]) -> Encoding:
    """Take an encoding from elsewhere, if all of it is of its form and within bounds."""
    known = read_encoding(value)
    try:
        kind = {TABLE: _is_table, TEXT: _is_text, NUMBERS: _is_array, PICTURES: _is_array, SOUND: _is_array}
        if _has_names(known) and kind[known.kind](known):
            return known
    except (LookupError, ArithmeticError, TypeError, ValueError, AttributeError):
        pass
    raise UserError("the encoding of this run is damaged, or of another moonfed")


def _has_names(known: Encoding) -> bool:
    columns = [column for column in (known.label, known.party, known.text) if column is not None]
    classes = known.classes
    fits = 2 <= len(classes) <= 1_000_000 and all(map(_name, [*columns, *classes]))
    return fits and len(set(classes)) == len(classes) and not known.parties


def _is_table(known: Encoding) -> bool:
    kinds, columns = known.scheme["kinds"], known.details["columns"]
    if not all(map(_name, kinds)) or [(column["name"], column["kind"]) for column in columns] != list(kinds.items()):
        return False
    width = sum(len(column["values"]) if column["kind"] == "category" else 2 for column in columns)
    return 0 < width <= MOST and all(map(_is_column, columns))


def _is_column(column: Mapping[str, Any]) -> bool:
    if column["kind"] == "category":
        return all(map(_name, column["values"]))
    mean, std, missing = column["mean"], column["std"], column["missing"]
    return column["kind"] == "number" and _finite(mean) and _finite(std) and std > 0 and isinstance(missing, bool)


def _is_text(known: Encoding) -> bool:
    words = known.details["words"]
    return len(words) <= MOST and all(map(_name, words)) and _whole(known.details["length"], 100_000)


def _is_array(known: Encoding) -> bool:
    scheme, details = known.scheme, known.details
    shape, axis = scheme["shape"], details["axis"]
    if not (isinstance(shape, list) and all(_whole(n, MOST) for n in shape) and math.prod(shape) <= MOST):
        return False
    if axis != (2 if known.kind == SOUND else 1) or {len(details["mean"]), len(details["std"])} != {shape[axis - 1]}:
        return False
    if known.kind == PICTURES and not (len(shape) == 3 and shape[0] in (1, 3)):
        return False
    if known.kind == SOUND and not (_whole(scheme["rate"], 1_000_000) and _whole(scheme["samples"], 600_000_000)):
        return False
    return all(map(_finite, [*details["mean"], *details["std"]])) and min(details["std"]) > 0


def _name(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= NAME


def _whole(value: Any, most: int) -> bool:
    return type(value) is int and 1 <= value <= most


def _finite(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
