"""Splits the rows of a data set between parties."""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from moonfed.core.errors import UserError, unknown
from moonfed.core.seeds import generator, published_numpy

Rows = NDArray[np.int64]
FEATURE_BINS = 10  # as many as the classes of the data sets that dirichlet was published with
CHUNK_ROWS = 1000  # rows that are standardised at a time
MAX_PEAK = 1e100  # largest input that is squared as it is; its inverse is the smallest
MAX_DRAWS = 1000  # draws without a split that gives every party enough rows, before it is an error


class Split(NamedTuple):
    """The parameters of a split."""

    parties: int
    beta: float  # concentration of the Dirichlet distribution
    classes_per_party: int  # for shards only
    floor: int  # the fewest rows that a party may have
    seed: int
    party: Rows | None = None  # the party of each row, for natural only
    inputs: NDArray[Any] | None = None  # the numbers of each row, in any shape, for feature-skew only


def dirichlet(labels: Rows, split: Split) -> Iterator[list[Rows] | None]:
    """Draw splits like the MOON authors' code: p ~ Dir(beta) for each class in order, zero for a party that is full.

    It uses NumPy's legacy generator, one stream for all draws, and so reproduces the published sizes exactly.
    """
    stream = published_numpy(split.seed)
    classes = int(labels.max()) + 1
    while True:
        pieces: list[list[Rows]] = [[] for _ in range(split.parties)]
        sizes = np.zeros(split.parties, dtype=np.int64)
        usable = True
        for k in range(classes):
            rows = np.flatnonzero(labels == k)
            stream.shuffle(rows)
            p = stream.dirichlet(np.repeat(split.beta, split.parties))
            p = p * (sizes < len(labels) / split.parties)
            if not p.sum() > 0:
                usable = False
                break
            p = p / p.sum()
            cuts = (np.cumsum(p) * len(rows)).astype(int)[:-1]
            for party, piece in enumerate(np.split(rows, cuts)):
                pieces[party].append(piece)
                sizes[party] += len(piece)
        if not usable or sizes.min() < split.floor:
            yield None
            continue
        parts = [np.concatenate(of_party) for of_party in pieces]
        for part in parts:
            stream.shuffle(part)
        yield parts


def dirichlet_pure(labels: Rows, split: Split) -> Iterator[list[Rows] | None]:
    """Draw splits like the paper's text: p_k ~ Dir(beta) for each class, without a limit on a party's rows."""
    rng = generator(split.seed, "partition", "dirichlet-pure")
    while True:
        pieces: list[list[Rows]] = [[] for _ in range(split.parties)]
        for k in range(int(labels.max()) + 1):
            rows = rng.permutation(np.flatnonzero(labels == k))
            p = rng.dirichlet(np.repeat(split.beta, split.parties))
            if not np.isfinite(p).all():
                break
            cuts = np.rint(np.cumsum(p)[:-1] * len(rows)).astype(int)
            for party, piece in enumerate(np.split(rows, cuts)):
                pieces[party].append(piece)
        yield _concatenate(pieces) if all(pieces) else None


def iid(labels: Rows, split: Split) -> Iterator[list[Rows] | None]:
    """Divide one permutation of all rows evenly, like the authors' code."""
    stream = published_numpy(split.seed)
    while True:
        yield [np.asarray(part) for part in np.array_split(stream.permutation(len(labels)), split.parties)]


def shards(labels: Rows, split: Split) -> Iterator[list[Rows] | None]:
    """Give each party rows of k classes only; every class is divided evenly among the parties that have it."""
    rng = generator(split.seed, "partition", "shards")
    classes = int(labels.max()) + 1
    if split.classes_per_party > classes:
        raise UserError(
            f"shards needs --classes-per-party from 1 to {classes} (the classes), got {split.classes_per_party}"
        )
    if split.parties * split.classes_per_party < classes:
        raise UserError(
            f"shards needs parties x classes-per-party >= {classes} so that no class is left out, got "
            f"{split.parties} x {split.classes_per_party}; use more of either"
        )
    while True:
        holders: list[list[int]] = [[] for _ in range(classes)]
        for party in rng.permutation(split.parties):
            # The classes with the fewest holders come first, ties at random, so every class gets a holder.
            order = sorted(range(classes), key=lambda k: (len(holders[k]), rng.random()))
            for k in order[: split.classes_per_party]:
                holders[k].append(int(party))
        pieces: list[list[Rows]] = [[] for _ in range(split.parties)]
        for k, parties in enumerate(holders):
            rows = rng.permutation(np.flatnonzero(labels == k))
            for party, piece in zip(parties, np.array_split(rows, len(parties)), strict=True):
                pieces[party].append(piece)
        yield _concatenate(pieces)


def quantity(labels: Rows, split: Split) -> Iterator[list[Rows] | None]:
    """Give each party a Dir(beta) share of a permutation of all rows: sizes differ, class proportions do not."""
    rng = generator(split.seed, "partition", "quantity")
    while True:
        p = rng.dirichlet(np.repeat(split.beta, split.parties))
        if not np.isfinite(p).all():
            yield None
            continue
        cuts = np.rint(np.cumsum(p)[:-1] * len(labels)).astype(int)
        yield list(np.split(rng.permutation(len(labels)), cuts))


def feature_skew(labels: Rows, split: Split) -> Iterator[list[Rows] | None]:
    """Draw splits as `dirichlet` does, with bins of a feature instead of classes.

    The feature is the position of a row along a random direction of the standardised inputs. Its bins hold equally many
    rows; rows at the same position are ordered at random.
    """
    if split.inputs is None:
        raise UserError("feature-skew needs the numbers of each row, got labels alone; use inputs=x, or another kind")
    rng = generator(split.seed, "partition", "feature-skew")
    positions = project_inputs(split.inputs, rng)
    shuffled = rng.permutation(len(labels))
    order = shuffled[np.argsort(positions[shuffled], kind="stable")]
    bins = np.empty(len(labels), dtype=np.int64)
    for number, rows in enumerate(np.array_split(order, min(FEATURE_BINS, len(labels)))):
        bins[rows] = number
    yield from dirichlet(bins, split)


def project_inputs(inputs: NDArray[Any], rng: np.random.Generator) -> NDArray[np.float64]:
    """Standardise every input over the rows and project each row on a random direction; constant inputs count 0."""
    flat = _in_range(inputs.reshape(len(inputs), math.prod(inputs.shape[1:])))
    chunks = [flat[start : start + CHUNK_ROWS] for start in range(0, len(flat), CHUNK_ROWS)]
    mean = sum(chunk.sum(0, dtype=np.float64) for chunk in chunks) / len(flat)
    variance = sum(((chunk - mean) ** 2).sum(0) for chunk in chunks) / len(flat)
    direction = rng.standard_normal(flat.shape[1])
    scaled = np.divide(direction, np.sqrt(variance), out=np.zeros_like(direction), where=variance > 0)
    return np.concatenate([((chunk - mean) @ scaled).round(9) for chunk in chunks])  # rounded: as on any machine


def _in_range(flat: NDArray[Any]) -> NDArray[Any]:
    """Divide inputs whose squares would leave the range of numbers by a power of two; refuse inputs that never vary."""
    low, high = flat.min(0).astype(np.float64), flat.max(0).astype(np.float64)
    if not (low < high).any():
        raise UserError(
            f"feature-skew needs an input that varies, each is the same in all {len(flat)} rows; use another partition"
        )
    peak = np.maximum(np.abs(low), np.abs(high))
    extreme = (peak > MAX_PEAK) | ((peak > 0) & (peak < 1 / MAX_PEAK))
    if not extreme.any():
        return flat
    return np.ldexp(flat.astype(np.float64), np.where(extreme, -np.frexp(peak)[1], 0))


def natural(labels: Rows, split: Split) -> Iterator[list[Rows] | None]:
    """Give each party the rows that the data assigns to it."""
    if split.party is None:
        raise UserError("natural needs data that names the party of each row; use --data PATH with --party COLUMN")
    while True:
        yield rows_by_party(np.arange(len(labels)), split.party, split.parties)


def rows_by_party(order: Rows, party: Rows, parties: int) -> list[Rows]:
    """Group rows by party, each party's in the given order; party names that of every row. One sort for all parties."""
    by_party = order[np.argsort(party[order], kind="stable")]
    return np.split(by_party, np.cumsum(np.bincount(party[order], minlength=parties))[:-1])


PARTITIONS: dict[str, Callable[[Rows, Split], Iterator[list[Rows] | None]]] = {
    "dirichlet": dirichlet,
    "dirichlet-pure": dirichlet_pure,
    "iid": iid,
    "shards": shards,
    "quantity": quantity,
    "feature-skew": feature_skew,
    "natural": natural,
}
BETA_PARTITIONS = ("dirichlet", "dirichlet-pure", "quantity", "feature-skew")  # those that beta is about


def partition(kind: str, labels: Rows, split: Split) -> list[Rows]:
    """Split rows between parties: the first draw that gives every party enough rows, or an error after MAX_DRAWS."""
    if kind not in PARTITIONS:
        raise unknown("partition", kind, PARTITIONS)
    if split.parties * split.floor > len(labels):
        raise UserError(
            f"{split.parties} parties with at least {split.floor} rows each need {split.parties * split.floor} rows, "
            f"the data has {len(labels)}; use --parties {len(labels) // split.floor} or fewer, or a smaller --floor"
        )
    if kind in BETA_PARTITIONS and not split.beta > 0:
        raise UserError(f"{kind} needs beta > 0, got {split.beta}; use --partition iid for an even split")
    draws = PARTITIONS[kind](labels, split)
    for _ in range(MAX_DRAWS):
        parts = next(draws)
        if parts is not None and min(len(part) for part in parts) >= split.floor:
            return parts
    raise UserError(
        f"{kind} found no split in {MAX_DRAWS} draws that gives each of {split.parties} parties {split.floor} rows "
        f"({len(labels)} rows, beta {split.beta}); use fewer parties, a larger --beta or a smaller --floor"
    )


def _concatenate(pieces: list[list[Rows]]) -> list[Rows]:
    return [np.sort(np.concatenate(part)) if part else np.zeros(0, dtype=np.int64) for part in pieces]
