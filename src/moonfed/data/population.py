"""The parties of a trial and their training rows, made when asked for: a round costs by its cohort alone."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from moonfed.core.seeds import generator
from moonfed.core.types import PartyInfo
from moonfed.data.partition import Rows

REMEMBERED_BYTES, MIN_REMEMBERED = 1 << 25, 64  # rows and class counts of parties that need not be made again
INFO_BYTES, COUNT_BYTES = 256, 64  # of what Python keeps of a party, and of each of its class counts
T_co = TypeVar("T_co", covariant=True)


class Totals(NamedTuple):
    """What is known of all parties together."""

    rows: int
    sizes: NDArray[np.int64]  # [party]: rows
    smallest: int  # a party with the fewest rows
    class_shares: tuple[float, ...]  # of all parties' rows; of a virtual population, the expected ones


class ByParty(Sequence[T_co], ABC):
    """A sequence by party, each item made when asked for."""

    @abstractmethod
    def item(self, party: int) -> T_co:
        """Make the item of a party that exists."""

    def __getitem__(self, index: Any) -> Any:
        parties = range(len(self))[index]
        return self.item(parties) if isinstance(parties, int) else [self.item(party) for party in parties]

    def __iter__(self) -> Iterator[T_co]:
        return map(self.item, range(len(self)))


class PartyRows(ByParty[Rows]):
    """The training rows of every party."""

    def __init__(self, labels: Rows, classes: int) -> None:
        self.labels, self.classes = labels, classes

    @property
    @abstractmethod
    def totals(self) -> Totals:
        """What is known of all parties together."""

    @property
    @abstractmethod
    def all_rows(self) -> Rows:
        """Every row that a party may have."""

    def info(self, party: int) -> PartyInfo:
        """Return what a rule may know of a party."""
        rows = self[party]
        return PartyInfo(party, len(rows), tuple(np.bincount(self.labels[rows], minlength=self.classes).tolist()))


class PartyInfos(ByParty[PartyInfo]):
    """What a rule may know of every party."""

    def __init__(self, rows: PartyRows) -> None:
        self.rows = rows
        self._remembered = lru_cache(
            max(MIN_REMEMBERED, REMEMBERED_BYTES // (INFO_BYTES + COUNT_BYTES * rows.classes))
        )(rows.info)

    def __len__(self) -> int:
        return len(self.rows)

    def item(self, party: int) -> PartyInfo:
        """Describe a party."""
        return self._remembered(party)


class IndexedRows(PartyRows):
    """Rows as one array with an offset per party."""

    def __init__(self, parts: Iterable[Rows], labels: Rows, classes: int) -> None:
        super().__init__(labels, classes)
        held = list(parts)
        self.order: Rows = np.concatenate(held) if held else np.zeros(0, dtype=np.int64)
        self.offsets = np.concatenate([[0], np.cumsum([len(part) for part in held], dtype=np.int64)])

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def item(self, party: int) -> Rows:
        """Return a party's rows."""
        return self.order[self.offsets[party] : self.offsets[party + 1]]

    @property
    def all_rows(self) -> Rows:
        """The rows of all parties."""
        return self.order

    @property
    def totals(self) -> Totals:
        """Count the rows by party and by class."""
        sizes = np.diff(self.offsets)
        counts = np.bincount(self.labels[self.order], minlength=self.classes)
        return Totals(len(self.order), sizes, int(sizes.argmin()), shares_of(counts))


class VirtualRows(PartyRows):
    """Any number of parties that draw their rows from a data set with replacement, each by itself.

    With beta, a party's class shares are drawn from Dir(beta C s), s the class shares of the pool and C its classes:
    Dir(beta, ..., beta) where classes are even. Without, every row is as likely as any other.
    """

    def __init__(
        self, pool: Rows, labels: Rows, classes: int, parties: int, size: int, beta: float | None, seed: int
    ) -> None:
        super().__init__(labels, classes)
        self.pool = pool[np.argsort(labels[pool], kind="stable")]  # rows of each class together
        self.counts = np.bincount(labels[pool], minlength=classes)
        self.parties, self.size, self.beta, self.seed = parties, size, beta, seed
        self._remembered = lru_cache(max(MIN_REMEMBERED, REMEMBERED_BYTES // (8 * size)))(self._draw)

    def __len__(self) -> int:
        return self.parties

    def item(self, party: int) -> Rows:
        """Draw a party's rows: the same ones every time."""
        return self._remembered(party)

    @property
    def all_rows(self) -> Rows:
        """The rows that parties draw from."""
        return self.pool

    def _draw(self, party: int) -> Rows:
        rng = generator(self.seed, "virtual", party)
        if self.beta is None:
            return self.pool[rng.integers(0, len(self.pool), size=self.size)]
        shares = self.counts / len(self.pool)
        held = np.flatnonzero(shares)
        drawn = rng.dirichlet(self.beta * len(held) * shares[held])
        if not np.isfinite(drawn).all():  # beta too small for floating point: the limit is one class
            drawn = rng.multinomial(1, shares[held])
        of_class = np.repeat(held, rng.multinomial(self.size, drawn / drawn.sum()))
        first = np.cumsum(self.counts) - self.counts
        return self.pool[first[of_class] + rng.integers(0, self.counts[of_class])]

    @property
    def totals(self) -> Totals:
        """All parties have the same number of rows."""
        return Totals(self.parties * self.size, np.full(self.parties, self.size), 0, shares_of(self.counts))


def totals_of(infos: Sequence[PartyInfo]) -> Totals:
    """Return what is known of all parties together; parties at other machines are counted one by one."""
    if isinstance(infos, PartyInfos):
        return infos.rows.totals
    sizes = np.array([info.rows for info in infos])
    counts = np.array([info.class_counts for info in infos]).sum(0)
    return Totals(int(sizes.sum()), sizes, int(sizes.argmin()), shares_of(counts))


def shares_of(counts: NDArray[Any]) -> tuple[float, ...]:
    """Divide counts by their sum."""
    return tuple((counts / max(1, counts.sum())).tolist())
