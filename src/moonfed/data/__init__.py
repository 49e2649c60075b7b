"""Data sets by name, and how their rows are split between parties."""

from collections.abc import Callable
from functools import partial

from moonfed.data.catalog.cache import load
from moonfed.data.catalog.digits import digits
from moonfed.data.catalog.file_sets import FILES, load_file
from moonfed.data.catalog.image_sets import CATALOGUE
from moonfed.data.dataset import Dataset

DATASETS: dict[str, Callable[[], Dataset]] = {"digits": digits} | {
    name: partial(load, entry) for name, entry in CATALOGUE.items()
}
DATASETS |= {name: partial(load_file, entry) for name, entry in FILES.items()}

NATURAL = frozenset(FILES)  # data sets whose rows say whose they are

__all__ = ["DATASETS", "NATURAL", "Dataset"]
