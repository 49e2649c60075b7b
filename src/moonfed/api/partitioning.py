"""partition: who holds which rows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from moonfed.api.keywords import PARTITION, config_of, keyword_errors
from moonfed.core.errors import UserError
from moonfed.data.partition import Split
from moonfed.data.partition import partition as split_rows


@keyword_errors(PARTITION)
def partition(
    labels: Any,
    parties: int = 10,
    kind: str = "dirichlet",
    *,
    beta: float = 0.5,
    classes_per_party: int = 2,
    floor: int = 10,
    seed: int = 0,
    inputs: Any = None,
) -> list[NDArray[np.int64]]:
    """Split rows between parties by their labels, and return the rows of each; the splits are those of moonfed run.

    >>> from moonfed import partition
    >>> parts = partition([0, 1] * 50, parties=4, kind="iid")
    >>> [len(part) for part in parts]
    [25, 25, 25, 25]

    The kind feature-skew needs inputs, an array with the numbers of each row.
    """
    given = np.asarray(labels)
    if given.ndim != 1:
        raise UserError(f"partition needs one label for each row, got an array of shape {given.shape}")
    asked: dict[str, Any] = {"parties": parties, "classes_per_party": classes_per_party, "floor": floor}
    checked = config_of({}, asked | {"beta": beta, "partition_seed": seed}).data
    _, numbers = np.unique(given, return_inverse=True)
    split = Split(checked.parties, checked.beta, checked.classes_per_party, checked.floor, checked.partition_seed or 0)
    return split_rows(kind, numbers.astype(np.int64), split._replace(inputs=_checked(inputs, len(given))))


def _checked(inputs: Any, rows: int) -> NDArray[Any] | None:
    """Take the inputs as an array of finite numbers with one entry per row."""
    if inputs is None:
        return None
    try:
        array = np.asarray(inputs)
    except ValueError:  # lists of different lengths
        raise UserError(
            "partition needs inputs with equally many numbers in each row, got rows of different lengths"
        ) from None
    if array.ndim < 1 or len(array) != rows or array.dtype.kind not in "biuf" or not np.isfinite(array).all():
        raise UserError(
            f"partition needs inputs of finite numbers, one entry for each of {rows} labels, got an array of "
            f"{array.dtype} of shape {array.shape}"
        )
    return array
