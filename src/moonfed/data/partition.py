"""How the rows of a data set are split between parties."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from moonfed.core.errors import UserError, unknown
from moonfed.core.seeds import generator, published_numpy

Rows = NDArray[np.int64]
DRAWS = 1000  # after so many draws without a split that holds the floor, there is none to be had


class Split(NamedTuple):
    """What a split is asked for."""

    parties: int
    beta: float  # concentration of the Dirichlet distribution
    classes_per_party: int  # shards only
    floor: int  # the fewest rows a party may have
    seed: int
    party: Rows | None = None  # whose each row is: natural only


def dirichlet(labels: Rows, split: Split) -> Iterator[list[Rows] | None]:
    """Draw splits as the MOON authors' code does: classes in order, p ~ Dir(beta), none for a party that is full.

    The stream is NumPy's legacy one and runs on from draw to draw, so that the published sizes come out exactly.
    """
    stream = published_numpy(split.seed)
    classes = int(labels.max()) + 1
    while True:
        held: list[list[Rows]] = [[] for _ in range(split.parties)]
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
                held[party].append(piece)
                sizes[party] += len(piece)
        if not usable or sizes.min() < split.floor:
            yield None
            continue
        parts = [np.concatenate(pieces) for pieces in held]
        for part in parts:
            stream.shuffle(part)
        yield parts


def dirichlet_pure(labels: Rows, split: Split) -> Iterator[list[Rows] | None]:
    """Draw splits as the paper's text says: p_k ~ Dir(beta) for each class, and no cap on a party."""
    rng = generator(split.seed, "partition", "dirichlet-pure")
    while True:
        held: list[list[Rows]] = [[] for _ in range(split.parties)]
        for k in range(int(labels.max()) + 1):
            rows = rng.permutation(np.flatnonzero(labels == k))
            p = rng.dirichlet(np.repeat(split.beta, split.parties))
            if not np.isfinite(p).all():
                break
            cuts = np.rint(np.cumsum(p)[:-1] * len(rows)).astype(int)
            for party, piece in enumerate(np.split(rows, cuts)):
                held[party].append(piece)
        yield _joined(held) if all(held) else None


def iid(labels: Rows, split: Split) -> Iterator[list[Rows] | None]:
    """Deal one permutation of all rows out evenly, as the authors' code does."""
    stream = published_numpy(split.seed)
    while True:
        yield [np.asarray(part) for part in np.array_split(stream.permutation(len(labels)), split.parties)]


def shards(labels: Rows, split: Split) -> Iterator[list[Rows] | None]:
    """Give each party rows of k classes only, every class shared evenly among the parties that hold it."""
    rng = generator(split.seed, "partition", "shards")
    classes = int(labels.max()) + 1
    if split.classes_per_party > classes:
        raise UserError(
            f"shards needs --classes-per-party from 1 to {classes}, the data's classes, got {split.classes_per_party}"
        )
    if split.parties * split.classes_per_party < classes:
        raise UserError(
            f"shards needs parties x classes-per-party >= {classes} so that no class is left out, got "
            f"{split.parties} x {split.classes_per_party}; use more of either"
        )
    while True:
        held: list[list[int]] = [[] for _ in range(classes)]
        for party in rng.permutation(split.parties):
            # The classes with the fewest holders first, ties at random: every class finds a holder.
            order = sorted(range(classes), key=lambda k: (len(held[k]), rng.random()))
            for k in order[: split.classes_per_party]:
                held[k].append(int(party))
        pieces: list[list[Rows]] = [[] for _ in range(split.parties)]
        for k, holders in enumerate(held):
            rows = rng.permutation(np.flatnonzero(labels == k))
            for party, piece in zip(holders, np.array_split(rows, len(holders)), strict=True):
                pieces[party].append(piece)
        yield _joined(pieces)


def quantity(labels: Rows, split: Split) -> Iterator[list[Rows] | None]:
    """Give each party a Dir(beta) share of a permutation of all rows: sizes differ, class shares do not."""
    rng = generator(split.seed, "partition", "quantity")
    while True:
        p = rng.dirichlet(np.repeat(split.beta, split.parties))
        if not np.isfinite(p).all():
            yield None
            continue
        cuts = np.rint(np.cumsum(p)[:-1] * len(labels)).astype(int)
        yield list(np.split(rng.permutation(len(labels)), cuts))


def natural(labels: Rows, split: Split) -> Iterator[list[Rows] | None]:
    """Give each party the rows that are its own."""
    if split.party is None:
        raise UserError("natural needs rows that say whose they are; name their column with --party, beside --data")
    while True:
        yield [np.flatnonzero(split.party == party) for party in range(split.parties)]


PARTITIONS: dict[str, Callable[[Rows, Split], Iterator[list[Rows] | None]]] = {
    "dirichlet": dirichlet,
    "dirichlet-pure": dirichlet_pure,
    "iid": iid,
    "shards": shards,
    "quantity": quantity,
    "natural": natural,
}


def partition(kind: str, labels: Rows, split: Split) -> list[Rows]:
    """Split rows between parties: the first draw that holds the floor, or an error after DRAWS draws."""
    if kind not in PARTITIONS:
        raise unknown("partition", kind, PARTITIONS)
    if split.parties * split.floor > len(labels):
        raise UserError(
            f"{split.parties} parties with at least {split.floor} rows each need {split.parties * split.floor} rows, "
            f"the data has {len(labels)}; use --parties {len(labels) // split.floor} or fewer, or a smaller --floor"
        )
    if kind in ("dirichlet", "dirichlet-pure", "quantity") and not split.beta > 0:
        raise UserError(f"{kind} needs beta > 0, got {split.beta}; use --partition iid for an even split")
    draws = PARTITIONS[kind](labels, split)
    for _ in range(DRAWS):
        parts = next(draws)
        if parts is not None and min(len(part) for part in parts) >= split.floor:
            return parts
    raise UserError(
        f"{kind} found no split in {DRAWS} draws that gives each of {split.parties} parties {split.floor} rows "
        f"({len(labels)} rows, beta {split.beta}); use fewer parties, a larger --beta or a smaller --floor"
    )


def class_counts(labels: Rows, parts: Sequence[Rows], classes: int) -> list[list[int]]:
    """Count each party's rows of each class."""
    return [np.bincount(labels[part], minlength=classes).tolist() for part in parts]


def _joined(pieces: list[list[Rows]]) -> list[Rows]:
    return [np.sort(np.concatenate(part)) if part else np.zeros(0, dtype=np.int64) for part in pieces]
