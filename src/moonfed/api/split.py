"""partition: who holds which rows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from moonfed.data.partition import Split
from moonfed.data.partition import partition as split_rows


def partition(
    labels: Any,
    parties: int = 10,
    kind: str = "dirichlet",
    *,
    beta: float = 0.5,
    classes_per_party: int = 2,
    floor: int = 10,
    seed: int = 0,
) -> list[NDArray[np.int64]]:
    """Split rows between parties by their labels, and return the rows of each; the splits are those of moonfed run.

    >>> from moonfed import partition
    >>> parts = partition([0, 1] * 50, parties=4, kind="iid")
    >>> [len(part) for part in parts]
    [25, 25, 25, 25]
    """
    _, numbers = np.unique(np.asarray(labels), return_inverse=True)
    return split_rows(kind, numbers.astype(np.int64), Split(parties, beta, classes_per_party, floor, seed))
