"""Chooses the test rows: a share of each party's rows, class by class."""

import numpy as np
from numpy.typing import NDArray

from moonfed.core.seeds import generator
from moonfed.data.partition import Rows

Counts = NDArray[np.int64]


def hold_out(labels: Rows, parties: Rows, share: float, seed: int) -> tuple[Rows, Rows]:
    """Split rows into training and test: a share of each party's rows, at least one if the party has two or more.

    Each party's test rows have its own class proportions. One row of every class, at the largest party that has the
    class, is never held out, so every class in the test set occurs in training.
    """
    rng, parties = generator(seed, "holdout"), parties.astype(np.int64)
    names, labels = np.unique(labels, return_inverse=True)
    sizes = np.bincount(parties)
    order = rng.permutation(len(labels))
    largest_first = order[np.argsort(-sizes[parties[order]], kind="stable")]
    _, first = np.unique(labels[largest_first], return_index=True)
    reserved = np.zeros(len(labels), dtype=bool)
    reserved[largest_first[first]] = True
    # A group is the rows of one class at one party; groups are in order of party, then class.
    keys, group = np.unique(parties * len(names) + labels, return_inverse=True)
    party = keys // len(names)
    taken = _rows_to_take(party, np.bincount(group), np.bincount(group[~reserved], minlength=len(keys)), sizes, share)
    free = order[~reserved[order]]
    free = free[np.argsort(group[free], kind="stable")]
    test = free[_place_within(group[free]) < taken[group[free]]]
    held_out = np.zeros(len(labels), dtype=bool)
    held_out[test] = True
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def _rows_to_take(party: Rows, counts: Counts, free: Counts, sizes: Counts, share: float) -> Counts:
    """Return how many free rows of each group are tested: the share of the group, rounded by the largest remainders.

    party, counts and free are those of each group, sizes the rows of each party.
    """
    wanted = np.minimum(np.maximum(1, np.round(share * sizes).astype(np.int64)), sizes - 1)
    due = np.minimum(share * counts, free)
    taken = due.astype(np.int64)
    by_remainder = np.lexsort((np.arange(len(party)), taken - due, party))
    owner = party[by_remainder]
    while True:  # one more row of each group that has one, as long as its party wants more
        missing = wanted - np.bincount(party, taken, minlength=len(sizes)).astype(np.int64)
        open_groups = by_remainder[(taken < free)[by_remainder] & (missing[owner] > 0)]
        more = open_groups[_place_within(party[open_groups]) < missing[party[open_groups]]]
        if not len(more):
            return taken
        taken[more] += 1


def _place_within(group: Rows) -> Rows:
    """Number the members of each group from 0; members of a group are neighbours."""
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    return np.arange(len(group)) - np.repeat(starts, np.diff(starts, append=len(group)))
