"""Makes a data set of a file or folder: reads it, rejects bad rows, holds out test rows and encodes all of them."""

import logging
import math
import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from moonfed.core.errors import UserError
from moonfed.data.dataset import Dataset
from moonfed.data.readers import csv_table, vocabulary
from moonfed.data.readers.arrow import is_hugging_face
from moonfed.data.readers.columns import MAX_SAFE_VALUES, identifier_columns
from moonfed.data.readers.dispatch import read_rows
from moonfed.data.readers.encoding import Encoding, describe, encode, fit, read_encoding
from moonfed.data.readers.holdout import hold_out
from moonfed.data.readers.options import AUDIO, IMAGES, TEXT, ReaderOptions
from moonfed.data.readers.raw_rows import RawRows, reject_bad_rows, skipped_record

SMALL_ROWS, SMALL_BATCH, BATCH = 5_000, 16, 64  # below that many training rows the default batch is small
logger = logging.getLogger(__name__)


def dataset_name(path: str) -> str:
    """Name a data set after its file or folder."""
    last = os.path.basename(os.path.abspath(path)).rsplit(".", 1)[0]
    return re.sub(r"[^\w.-]+", "-", last)[:40].strip("-.") or "data"


def read_dataset(
    path: str | Path,
    options: ReaderOptions = ReaderOptions(),  # noqa: B008 (frozen)
    encoding: Mapping[str, Any] | None = None,
    needs_holdout: bool = False,
) -> Dataset:
    """Read a user's file or folder as a data set; the encoding is learned from its training rows unless given.

    With needs_holdout, data that comes with test rows is refused.
    """
    shared = None if encoding is None else read_encoding(encoding)
    rows = read_rows(Path(path), options, shared.schema if shared else None)
    if needs_holdout and not is_held_out(rows, options):
        raise UserError(f"{rows.name} comes with test rows, so none are held out; omit --holdout-seeds")
    data = assemble(rows, str(path), options, shared)
    log_summary(rows, data, options)
    if shared is None:
        _warn_identifiers(rows)
    return data


def assemble(rows: RawRows, path: str, options: ReaderOptions, shared: Encoding | None = None) -> Dataset:
    """Make a data set of raw rows: reject or skip bad ones, hold out test rows, encode them all."""
    whole = reject_bad_rows(_remove_unusable(rows, shared, is_held_out(rows, options)), options.skip_bad_rows)
    if not len(whole):
        raise UserError(f"{rows.name} has no {'usable ' if whole.bad else ''}rows")
    classes = shared.classes if shared else sort_names(whole.labels or [])
    if len(classes) < 2:
        raise UserError(f'{rows.name} has only one class, "{", ".join(classes)}"; a classifier needs two or more')
    if not shared and len(classes) > MAX_SAFE_VALUES and 2 * len(classes) > len(whole):
        raise UserError(
            f"{rows.name}: the label has {len(classes):,} different values in {len(whole):,} rows, too many for "
            "classes; is it the right column?"
        )
    parties = shared.parties if shared else sort_names(whole.parties or [])
    if not shared:
        _check_names(whole.name, (*classes, *parties))
    train, test = _split_test(whole, options, classes, parties)
    encoding = shared or Encoding(
        train.kind, options.label, options.party, options.text, classes, parties, train.schema, fit(train, options)
    )
    data = build_dataset(dataset_name(path), train, test, encoding)
    held_out = is_held_out(rows, options)
    source = {"path": path, "kind": train.kind, "skipped": skipped_record(whole, None if held_out else test)}
    return replace(data, encoding=encoding.as_json(), source=source, held_out=held_out)


def _check_names(source: str, names: tuple[str, ...]) -> None:
    """Refuse classes and parties whose names no file can hold."""
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise UserError(f"{source}: the class or party {name!a} has a name that is not UTF-8; rename it") from None


def _warn_identifiers(rows: RawRows) -> None:
    if isinstance(rows.content, dict):
        for column in identifier_columns(rows.content, rows.schema["kinds"]):
            logger.warning(
                "%s: column %s is another whole number in each of %s rows; if it is an identifier, leave it out with "
                "--ignore %s",
                *(rows.name, column, f"{len(rows):,}", column),
            )


def is_held_out(rows: RawRows, options: ReaderOptions) -> bool:
    """Whether test rows are held out, since neither the options nor the data name any."""
    return options.test is None and rows.test is None


def log_summary(rows: RawRows, data: Dataset, options: ReaderOptions) -> None:
    """Log the size and the kind of a data set in one line."""
    test = Path(options.test).name if options.test is not None else rows.test.name if rows.test else "held out"
    parties = f", {len(data.party_names)} parties" if data.party_names else ""
    inputs = describe(read_encoding(data.encoding or {}))
    logger.info(
        "%s: %s training rows and %s test rows (%s), %s, %d classes%s",
        *(rows.name, f"{len(data.labels):,}", f"{len(data.test_labels):,}", test, inputs, data.classes, parties),
    )


def sort_names(names: list[str]) -> tuple[str, ...]:
    """Return the different names in order, numbers by value."""
    different = set(names)
    try:
        values = {name: float(name) for name in different}
    except ValueError:
        return tuple(sorted(different))
    if any(math.isnan(value) for value in values.values()):  # NaN has no order
        return tuple(sorted(different))
    return tuple(sorted(different, key=lambda name: (values[name], name)))


def _remove_unusable(rows: RawRows, shared: Encoding | None, held_out: bool) -> RawRows:
    """Remove labels that a shared encoding does not have and, where test rows are held out, parties of a single row."""
    counts = Counter((rows.parties or []) if held_out else [])
    bad = {
        row: f'party "{party}" has no other row, and needs two: one to train, one to test'
        for row, party in enumerate(rows.parties or [])
        if counts[party] == 1
    }
    return rows.without(bad | (unseen_labels(rows, shared.classes, shared.parties) if shared else {}))


def unseen_labels(rows: RawRows, classes: tuple[str, ...], parties: tuple[str, ...]) -> dict[int, str]:
    """Find rows whose label or party does not occur in training."""
    bad: dict[int, str] = {}
    for what, values, known in (("party", rows.parties, set(parties)), ("label", rows.labels, set(classes))):
        bad |= {
            row: f'{what} "{value}" does not occur in training'
            for row, value in enumerate(values or [])
            if known and value not in known
        }
    return bad


def _split_test(
    whole: RawRows, options: ReaderOptions, classes: tuple[str, ...], parties: tuple[str, ...]
) -> tuple[RawRows, RawRows]:
    """Return training and test rows: the test rows are those of --test, those that come with the data, or held out."""
    test = whole.test
    if options.test is not None:
        test = read_rows(Path(options.test), options, whole.schema, may_lack_party=True)
    if test is not None:
        if test.kind != whole.kind:
            raise UserError(f"{test.name} is of the kind {test.kind}, the training rows are {whole.kind}")
        if parties and test.parties is None:
            note = f"{test.name} does not name the party of its rows: there is no accuracy by party"
            test = replace(test, notes=(*test.notes, note))
        test = reject_bad_rows(test.without(unseen_labels(test, classes, parties)), options.skip_bad_rows)
        if not len(test):
            raise UserError(f"{test.name} has no test rows")
        return whole, test
    labels = index_names(whole.labels or [], classes)
    owners = index_names(whole.parties, parties) if whole.parties else np.zeros_like(labels)
    train, held_out = hold_out(labels, owners, options.holdout, options.holdout_seed)
    if not len(held_out):
        rows = f"{len(whole)} rows of {len(classes)} classes"
        raise UserError(f"{whole.name} has {rows}, too few to hold some out for testing; use --test PATH")
    return whole.take(train), whole.take(held_out)


def index_names(names: list[str], known: tuple[str, ...]) -> NDArray[np.int64]:
    """Replace names by their index among the known ones."""
    index = {name: k for k, name in enumerate(known)}
    return np.array([index[name] for name in names], dtype=np.int64)


def build_dataset(name: str, train: RawRows, test: RawRows, encoding: Encoding) -> Dataset:
    """Encode training and test rows as a data set."""
    classes, parties = encoding.classes, encoding.parties
    inputs, test_inputs = (encode(part, encoding) for part in (train, test))
    labels, test_labels = (torch.from_numpy(index_names(part.labels or [], classes)) for part in (train, test))
    party, test_party = (
        torch.from_numpy(index_names(part.parties, parties)) if part.parties else None for part in (train, test)
    )
    batch = SMALL_BATCH if len(labels) < SMALL_ROWS else BATCH
    scale = encoding.details if encoding.kind == IMAGES else {"mean": (), "std": ()}
    return Dataset(
        name,
        inputs,
        labels,
        test_inputs,
        test_labels,
        len(classes),
        tuple(scale["mean"]),
        tuple(scale["std"]),
        batch=batch,
        encoder=_default_encoder(encoding.kind, tuple(inputs.shape[1:])),
        words=vocabulary.vocabulary_size(encoding.details) if encoding.kind == TEXT else 0,
        class_names=classes,
        party=party,
        test_party=test_party if party is not None else None,
        party_names=parties,
    )


def _default_encoder(kind: str, shape: tuple[int, ...]) -> str:
    if kind == TEXT:
        return "text"
    if kind == AUDIO:
        return "sound"
    return "cnn" if len(shape) == 3 and min(shape[1:]) >= 4 else "mlp"


class EncodedRows(NamedTuple):
    """Rows as inputs of a network, with their raw form."""

    inputs: Tensor
    rows: RawRows  # labels and parties if the data has them, locations, skipped bad rows

    @property
    def labels(self) -> list[str] | None:
        """The rows' labels, None if the data has none."""
        return self.rows.labels


def apply_encoding(
    encoding: Mapping[str, Any] | Encoding, path: str | Path, skip_bad_rows: bool = False
) -> EncodedRows:
    """Read rows in the same way as the training rows; labels may be missing."""
    known = encoding if isinstance(encoding, Encoding) else read_encoding(encoding)
    _check_kind(Path(path), known)
    rows = reject_bad_rows(read_rows(Path(path), known.options, known.schema, labelled=False), skip_bad_rows)
    if rows.kind != known.kind:
        raise UserError(f"{rows.name} is of the kind {rows.kind}, the model was trained on {known.kind}")
    if not len(rows):
        raise UserError(f"{rows.name} has no rows")
    inputs = encode(rows, known)
    if known.kind == IMAGES:
        inputs = _normalise_images(inputs, known.details)
    return EncodedRows(inputs, rows)


def _check_kind(path: Path, known: Encoding) -> None:
    """Refuse a folder where a file is needed, and a table where media files are needed, before reading it."""
    media = known.kind in (IMAGES, AUDIO)
    if not media and path.is_dir() and not is_hugging_face(path):
        raise UserError(f"{path} is a folder, the model was trained on {known.kind}; name a file of that kind")
    if media and path.suffix.lower() in csv_table.SUFFIXES:
        raise UserError(f"{path.name} is a table, the model was trained on {known.kind}")


def _normalise_images(images: Tensor, details: Mapping[str, Any]) -> Tensor:
    mean, std = (torch.tensor(details[key], dtype=torch.float32).view(-1, 1, 1) for key in ("mean", "std"))
    return images.to(torch.float32).sub_(mean).div_(std)
