"""Data sets by name, and how their rows are split between parties."""

from collections.abc import Callable

from moonfed.data.dataset import Dataset
from moonfed.data.digits import digits

DATASETS: dict[str, Callable[[], Dataset]] = {"digits": digits}

__all__ = ["DATASETS", "Dataset"]
