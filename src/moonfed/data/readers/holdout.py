"""Chooses the test rows: a share of each party's rows, class by class."""

import numpy as np
from numpy.typing import NDArray

from moonfed.core.seeds import generator
from moonfed.data.partition import Rows, rows_by_party


def hold_out(labels: Rows, parties: Rows, share: float, seed: int) -> tuple[Rows, Rows]:
    """Split rows into training and test: a share of each party's rows, at least one if the party has two or more.

    Each party's test rows have its own class proportions. One row of every class, at the largest party that has the
    class, is never held out, so every class in the test set occurs in training.
    """
    rng = generator(seed, "holdout")
    sizes = np.bincount(parties)
    order = rng.permutation(len(labels))
    largest_first = order[np.argsort(-sizes[parties[order]], kind="stable")]
    _, first = np.unique(labels[largest_first], return_index=True)
    reserved = np.zeros(len(labels), dtype=bool)
    reserved[largest_first[first]] = True
    test = np.zeros(len(labels), dtype=bool)
    for rows in rows_by_party(order, parties, len(sizes)):
        count = min(max(1, round(share * len(rows))), len(rows) - 1)
        test[_choose(rows, labels, reserved, count, share)] = True
    return np.flatnonzero(~test), np.flatnonzero(test)


def _choose(rows: Rows, labels: Rows, reserved: NDArray[np.bool_], count: int, share: float) -> Rows:
    """Choose test rows of one party: the share of each class, rounded by the largest remainders."""
    classes, counts = np.unique(labels[rows], return_counts=True)
    free = [rows[(labels[rows] == k) & ~reserved[rows]] for k in classes]
    due = [min(share * n, len(of_class)) for n, of_class in zip(counts, free, strict=True)]
    taken = [int(d) for d in due]
    remainders = sorted(range(len(classes)), key=lambda k: taken[k] - due[k])
    while sum(taken) < count:
        room = [k for k in remainders if taken[k] < len(free[k])]
        if not room:
            break
        for k in room[: count - sum(taken)]:
            taken[k] += 1
    excess = sum(taken) - count
    for k in reversed(remainders):
        less = min(max(0, excess), taken[k])
        taken[k], excess = taken[k] - less, excess - less
    return np.concatenate([of_class[:n] for of_class, n in zip(free, taken, strict=True)])
