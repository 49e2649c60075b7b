"""From a path and a few settings to a data set."""

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
from moonfed.data.readers import csv_table as table
from moonfed.data.readers import vocabulary as words
from moonfed.data.readers.arrow import is_hugging_face
from moonfed.data.readers.columns import MANY
from moonfed.data.readers.dispatch import read
from moonfed.data.readers.encoding import Encoding, encode, fit, read_encoding, told
from moonfed.data.readers.holdout import hold_out
from moonfed.data.readers.limits import Say
from moonfed.data.readers.options import PICTURES, SOUND, TEXT, ReaderOptions
from moonfed.data.readers.raw_rows import Found, clear, skipped

SMALL, SMALL_BATCH, BATCH = 5_000, 16, 64  # training rows below which batches are small


def name_of(path: str) -> str:
    """Name a data set after its file or folder."""
    last = os.path.basename(os.path.abspath(path)).rsplit(".", 1)[0]
    return re.sub(r"[^\w.-]+", "-", last)[:40].strip("-.") or "data"


def read_dataset(
    path: str | Path,
    settings: ReaderOptions = ReaderOptions(),  # noqa: B008 (frozen)
    say: Say = lambda line: None,
    encoding: Mapping[str, Any] | None = None,
) -> Dataset:
    """Read data of one's own and make a data set of it.

    With an encoding, a site's rows become what those of the others became; without, it is learned from training rows.
    """
    known = None if encoding is None else read_encoding(encoding)
    found = read(Path(path), settings, say, known.scheme if known else None)
    return assemble(found, str(path), settings, say, known)


def assemble(found: Found, path: str, settings: ReaderOptions, say: Say, known: Encoding | None = None) -> Dataset:
    """Make a data set of rows that were read: refuse or leave out bad ones, hold out some, encode them all."""
    whole = clear(_with_room(found, known), settings.skip_bad_rows)
    if not len(whole):
        raise UserError(f"{found.name} has no rows" + (" that can be used" if whole.bad else ""))
    classes = known.classes if known else ordered(whole.labels or [])
    if len(classes) < 2:
        only = ", ".join(classes)
        raise UserError(f'{found.name} has one class only, "{only}"; a classifier needs two or more')
    if not known and len(classes) > MANY and 2 * len(classes) > len(whole):
        raise UserError(
            f"{found.name}: the label has {len(classes):,} different values in {len(whole):,} rows, too many for "
            "classes; a classifier needs a few names: is it the right column?"
        )
    parties = known.parties if known else ordered(whole.parties or [])
    train, test = _parted(whole, settings, say, classes, parties)
    made = known or Encoding(
        train.kind, settings.label, settings.party, settings.text, classes, parties, train.scheme, fit(train, settings)
    )
    data = dataset_of(name_of(path), train, test, made)
    held = settings.test is None and found.test is None
    for line in (*train.notes, *(() if held else test.notes)):
        say(line)
    by = f", {len(parties)} parties" if parties else ""
    say(
        f"{found.name}: {len(train):,} training rows and {len(test):,} test rows "
        f"({'held out' if held else test.name}), {told(made)}, {len(classes)} classes{by}"
    )
    facts = {"path": path, "kind": train.kind, "skipped": skipped(whole, None if held else test)}
    return replace(data, encoding=made.as_json(), source=facts)


def ordered(names: list[str]) -> tuple[str, ...]:
    """Put names in order, numbers by size."""
    different = set(names)
    try:
        sizes = {name: float(name) for name in different}
    except ValueError:
        return tuple(sorted(different))
    if any(math.isnan(size) for size in sizes.values()):  # which is neither more nor less than any number
        return tuple(sorted(different))
    return tuple(sorted(different, key=lambda name: (sizes[name], name)))


def _with_room(found: Found, known: Encoding | None) -> Found:
    """Mark the only row of a party as bad, and labels that an encoding does not know."""
    counts = Counter(found.parties or [])
    bad = {
        row: f'party "{party}" has no other row, and needs two: one to train, one to test'
        for row, party in enumerate(found.parties or [])
        if counts[party] == 1
    }
    return found.without(bad | (strange(found, known.classes, known.parties) if known else {}))


def strange(found: Found, classes: tuple[str, ...], parties: tuple[str, ...]) -> dict[int, str]:
    """Find rows whose label or party no training row has."""
    bad: dict[int, str] = {}
    for what, values, seen in (("party", found.parties, parties), ("label", found.labels, classes)):
        seen = set(seen)
        bad |= {
            row: f'{what} "{value}" was never seen in training'
            for row, value in enumerate(values or [])
            if seen and value not in seen
        }
    return bad


def _parted(
    whole: Found, settings: ReaderOptions, say: Say, classes: tuple[str, ...], parties: tuple[str, ...]
) -> tuple[Found, Found]:
    """Find the test rows: those that are named, those that the data brings, or some that are held out."""
    test = whole.test
    if settings.test is not None:
        test = read(Path(settings.test), settings, say, whole.scheme, may_lack_party=True)
    if test is not None:
        if test.kind != whole.kind:
            raise UserError(f"{test.name} holds {test.kind}, the training rows are {whole.kind}")
        if parties and test.parties is None:
            note = f"{test.name} does not say whose its rows are: there is no accuracy by party"
            test = replace(test, notes=(*test.notes, note))
        test = clear(test.without(strange(test, classes, parties)), settings.skip_bad_rows)
        if not len(test):
            raise UserError(f"{test.name} has no test rows")
        return whole, test
    labels = numbered(whole.labels or [], classes)
    whose = numbered(whole.parties, parties) if whole.parties else np.zeros_like(labels)
    train, held = hold_out(labels, whose, settings.holdout, settings.holdout_seed)
    if not len(held):
        rows = f"{len(whole)} rows of {len(classes)} classes"
        raise UserError(f"{whole.name} has {rows}, too few to hold some out for testing; use --test PATH")
    return whole.take(train), whole.take(held)


def numbered(names: list[str], known: tuple[str, ...]) -> NDArray[np.int64]:
    """Number names by their place among those that are known."""
    place = {name: k for k, name in enumerate(known)}
    return np.array([place[name] for name in names], dtype=np.int64)


def dataset_of(name: str, train: Found, test: Found, encoding: Encoding) -> Dataset:
    """Turn rows that were read into a data set."""
    classes, parties = encoding.classes, encoding.parties
    inputs, test_inputs = (encode(part, encoding) for part in (train, test))
    labels, test_labels = (torch.from_numpy(numbered(part.labels or [], classes)) for part in (train, test))
    party, test_party = (
        torch.from_numpy(numbered(part.parties, parties)) if part.parties else None for part in (train, test)
    )
    batch = SMALL_BATCH if len(labels) < SMALL else BATCH
    if party is not None:
        batch = min(batch, int(party.unique(return_counts=True)[1].min()))
    look = encoding.details if encoding.kind == PICTURES else {"mean": (), "std": ()}
    return Dataset(
        name,
        inputs,
        labels,
        test_inputs,
        test_labels,
        len(classes),
        tuple(look["mean"]),
        tuple(look["std"]),
        batch=batch,
        encoder=_encoder(encoding.kind, tuple(inputs.shape[1:])),
        words=words.count(encoding.details) if encoding.kind == TEXT else 0,
        class_names=classes,
        party=party,
        test_party=test_party if party is not None else None,
        party_names=parties,
    )


def _encoder(kind: str, shape: tuple[int, ...]) -> str:
    """Choose the encoder that is used if none is asked for."""
    if kind in (TEXT, SOUND):
        return kind
    return "cnn" if len(shape) == 3 and min(shape[1:]) >= 4 else "mlp"


class Applied(NamedTuple):
    """Rows that are ready for a network, and what is known of them."""

    inputs: Tensor
    rows: Found  # labels and parties where they are there, places, bad rows that were left out

    @property
    def labels(self) -> list[str] | None:
        """What the rows are, where the data says so."""
        return self.rows.labels


def apply(
    encoding: Mapping[str, Any] | Encoding,
    path: str | Path,
    skip_bad_rows: bool = False,
    say: Say = lambda line: None,
) -> Applied:
    """Read rows to come as the training rows were read; labels may be missing."""
    known = encoding if isinstance(encoding, Encoding) else read_encoding(encoding)
    _check_kind(Path(path), known)
    found = clear(read(Path(path), known.settings, say, known.scheme, labelled=False), skip_bad_rows)
    if found.kind != known.kind:
        raise UserError(f"{found.name} holds {found.kind}, the model was trained on {known.kind}")
    if not len(found):
        raise UserError(f"{found.name} has no rows")
    inputs = encode(found, known)
    if known.kind == PICTURES:
        inputs = normalised(inputs, known.details)
    return Applied(inputs, found)


def _check_kind(path: Path, known: Encoding) -> None:
    """Refuse a folder of files where a table was trained on, and the other way round, before it is read as one."""
    media = known.kind in (PICTURES, SOUND)
    if not media and path.is_dir() and not is_hugging_face(path):
        raise UserError(f"{path} is a folder, the model was trained on {known.kind}; name a file like its own")
    if media and path.suffix.lower() in table.SUFFIXES:
        raise UserError(f"{path.name} is a table, the model was trained on {known.kind}")


def normalised(pictures: Tensor, details: Mapping[str, Any]) -> Tensor:
    """Bring pictures to the scale that the network was trained on."""
    mean, std = (torch.tensor(details[key], dtype=torch.float32).view(-1, 1, 1) for key in ("mean", "std"))
    return pictures.to(torch.float32).sub_(mean).div_(std)
