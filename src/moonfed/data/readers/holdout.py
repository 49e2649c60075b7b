"""Which rows are kept for testing: some of each party's, class by class."""

import numpy as np
from numpy.typing import NDArray

from moonfed.core.seeds import generator

Rows = NDArray[np.int64]


def hold_out(labels: Rows, parties: Rows, share: float, seed: int) -> tuple[Rows, Rows]:
    """Split rows into training and test: a share of each party's rows, at least one where it has two or more.

    Each party's test rows are spread over its classes as its rows are. One row of every class, at the largest party
    that has the class, is never held out: what is asked in the test has been seen in training.
    """
    rng = generator(seed, "holdout")
    sizes = np.bincount(parties)
    order = rng.permutation(len(labels))
    largest_first = order[np.argsort(-sizes[parties[order]], kind="stable")]
    _, first = np.unique(labels[largest_first], return_index=True)
    bound = np.zeros(len(labels), dtype=bool)
    bound[largest_first[first]] = True
    test = np.zeros(len(labels), dtype=bool)
    for party in range(len(sizes)):
        mine = order[parties[order] == party]
        wanted = min(max(1, round(share * len(mine))), len(mine) - 1)
        test[_spread(mine, labels, bound, wanted, share)] = True
    return np.flatnonzero(~test), np.flatnonzero(test)


def _spread(mine: Rows, labels: Rows, bound: NDArray[np.bool_], wanted: int, share: float) -> Rows:
    """Choose rows of one party, from each class its share, the largest remainders first."""
    classes, counts = np.unique(labels[mine], return_counts=True)
    free = [mine[(labels[mine] == k) & ~bound[mine]] for k in classes]
    due = [min(share * n, len(rows)) for n, rows in zip(counts, free, strict=True)]
    taken = [int(d) for d in due]
    remainders = sorted(range(len(classes)), key=lambda k: taken[k] - due[k])
    while sum(taken) < wanted:
        room = [k for k in remainders if taken[k] < len(free[k])]
        if not room:
            break
        for k in room[: wanted - sum(taken)]:
            taken[k] += 1
    over = sum(taken) - wanted
    for k in reversed(remainders):
        less = min(max(0, over), taken[k])
        taken[k], over = taken[k] - less, over - less
    return np.concatenate([rows[:n] for rows, n in zip(free, taken, strict=True)])
