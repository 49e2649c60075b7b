"""Data as Python has it: a name, a Dataset."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from moonfed.core.errors import UserError, unknown
from moonfed.data import DATASETS, Dataset

DataLike: TypeAlias = str | Dataset


class Known(NamedTuple):
    """A data set, and its labels as they came."""

    data: Dataset
    classes: Sequence[Any] | None = None


def known(data: DataLike) -> Known:
    """Take data in any of its forms."""
    if isinstance(data, Dataset):
        return Known(data)
    if isinstance(data, str):
        if data not in DATASETS:
            raise unknown("data set", data, DATASETS)
        return Known(DATASETS[data]())
    raise UserError(f"data is the name of a data set or a Dataset, got {type(data).__name__}")
