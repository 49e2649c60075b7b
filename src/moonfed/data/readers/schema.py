"""The schema that sites share: rows read with the coordinator's encoding become the same inputs at every site."""

import logging
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from moonfed.core.errors import UserError
from moonfed.core.wording import counted
from moonfed.data.dataset import Dataset
from moonfed.data.readers.assemble import build_dataset, dataset_name, unseen_labels
from moonfed.data.readers.dispatch import read_rows
from moonfed.data.readers.encoding import Encoding, describe, read_encoding
from moonfed.data.readers.limits import MAX_ROW_VALUES
from moonfed.data.readers.options import AUDIO, IMAGES, NUMBERS, TABLE, TEXT, ReaderOptions
from moonfed.data.readers.raw_rows import RawRows, reject_bad_rows

MAX_NAME_LENGTH = 10_000  # characters
MAX_CLASSES = 1_000_000
MAX_TEXT_LENGTH = 100_000  # words
MAX_RATE, MAX_SAMPLES = 1_000_000, 600_000_000  # of audio clips
logger = logging.getLogger(__name__)


class IncompatibleRows(UserError):
    """Rows that a run cannot use: the full reason for their owner, and a public one without details for others."""

    def __init__(self, message: str, public: str) -> None:
        super().__init__(message)
        self.public = public


def inspect_rows(path: str | Path, options: ReaderOptions) -> str:
    """Read rows before an encoding is known and describe them in one line; bad rows are rejected."""
    rows = reject_bad_rows(read_rows(Path(path), options), options.skip_bad_rows)
    if not len(rows):
        raise UserError(f"{rows.name} has no usable rows")
    classes = len(set(rows.labels or []))
    return f"{rows.name}: {counted(len(rows), 'row')}, {counted(classes, 'class', 'classes')}"


def read_with_encoding(encoding: Encoding, path: str | Path, options: ReaderOptions) -> Dataset:
    """Read rows with an encoding that was learned elsewhere; all of them are training rows."""
    try:
        rows = _read(encoding, Path(path), options)
    except IncompatibleRows:
        raise
    except UserError as error:
        raise IncompatibleRows(str(error), "its rows cannot be read in the form that this run needs") from None
    data = build_dataset(dataset_name(str(path)), rows, rows.take([]), replace(encoding, party=None, parties=()))
    classes = f"{len(set(rows.labels or []))} of {data.classes} classes"
    logger.info("%s: %s rows, %s, %s", rows.name, f"{len(rows):,}", describe(encoding), classes)
    return data


def _read(encoding: Encoding, path: Path, options: ReaderOptions) -> RawRows:
    rows = read_rows(path, replace(options, text=options.text or encoding.text), encoding.schema)
    rows = replace(rows, parties=None, test=None)
    if rows.kind != encoding.kind:
        kinds = f"of the kind {rows.kind}, this run needs {encoding.kind}"
        raise IncompatibleRows(f"{rows.name} is {kinds}", f"its rows are {kinds}")
    bad = unseen_labels(rows, encoding.classes, ())
    try:
        rows = reject_bad_rows(rows.without(bad), options.skip_bad_rows)
    except UserError as error:
        public = f"{len(bad)} of its rows have classes that this run does not have" if bad else "it has bad rows"
        raise IncompatibleRows(str(error), public) from None
    if not len(rows):
        raise IncompatibleRows(f"{rows.name} has no usable rows", "it has no usable rows")
    return rows


def validate_encoding(value: Mapping[str, Any]) -> Encoding:
    """Make an encoding from untrusted JSON; it is refused unless every part is well-formed and within bounds."""
    encoding = read_encoding(value)
    try:
        checks = {TABLE: _is_table, TEXT: _is_text, NUMBERS: _is_array, IMAGES: _is_array, AUDIO: _is_array}
        if _has_valid_names(encoding) and checks[encoding.kind](encoding):
            return encoding
    except (LookupError, ArithmeticError, TypeError, ValueError, AttributeError):
        pass
    raise UserError("the encoding of this run is damaged, or from another version of moonfed")


def _has_valid_names(encoding: Encoding) -> bool:
    columns = [column for column in (encoding.label, encoding.party, encoding.text) if column is not None]
    classes = encoding.classes
    valid = 2 <= len(classes) <= MAX_CLASSES and all(map(_is_name, [*columns, *classes]))
    return valid and len(set(classes)) == len(classes) and not encoding.parties


def _is_table(encoding: Encoding) -> bool:
    kinds, columns = encoding.schema["kinds"], encoding.details["columns"]
    if not all(map(_is_name, kinds)) or [(column["name"], column["kind"]) for column in columns] != list(kinds.items()):
        return False
    width = sum(len(column["values"]) if column["kind"] == "category" else 2 for column in columns)
    return 0 < width <= MAX_ROW_VALUES and all(map(_is_column, columns))


def _is_column(column: Mapping[str, Any]) -> bool:
    if column["kind"] == "category":
        return all(map(_is_name, column["values"]))
    mean, std, missing = column["mean"], column["std"], column["missing"]
    return column["kind"] == "number" and _is_finite(mean) and _is_finite(std) and std > 0 and isinstance(missing, bool)


def _is_text(encoding: Encoding) -> bool:
    words = encoding.details["words"]
    return (
        len(words) <= MAX_ROW_VALUES
        and all(map(_is_name, words))
        and _is_count(encoding.details["length"], MAX_TEXT_LENGTH)
    )


def _is_array(encoding: Encoding) -> bool:
    schema, details = encoding.schema, encoding.details
    shape, axis = schema["shape"], details["axis"]
    if not (isinstance(shape, list) and all(_is_count(n, MAX_ROW_VALUES) for n in shape)):
        return False
    if math.prod(shape) > MAX_ROW_VALUES or axis != (2 if encoding.kind == AUDIO else 1):
        return False
    if {len(details["mean"]), len(details["std"])} != {shape[axis - 1]}:
        return False
    if encoding.kind == IMAGES and not (len(shape) == 3 and shape[0] in (1, 3)):
        return False
    if encoding.kind == AUDIO and not (
        _is_count(schema["rate"], MAX_RATE) and _is_count(schema["samples"], MAX_SAMPLES)
    ):
        return False
    return all(map(_is_finite, [*details["mean"], *details["std"]])) and min(details["std"]) > 0


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_NAME_LENGTH


def _is_count(value: Any, maximum: int) -> bool:
    return type(value) is int and 1 <= value <= maximum


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
