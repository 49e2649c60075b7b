"""Data sets by name, and how their rows are split between parties."""

from collections.abc import Callable
from functools import partial

from moonfed.data.cache import load
from moonfed.data.catalogue import CATALOGUE
from moonfed.data.dataset import Dataset
from moonfed.data.digits import digits
from moonfed.data.files import FILES, load_file

DATASETS: dict[str, Callable[[], Dataset]] = {"digits": digits} | {
    name: partial(load, entry) for name, entry in CATALOGUE.items()
}
DATASETS |= {name: partial(load_file, entry) for name, entry in FILES.items()}

NATURAL = frozenset(FILES)  # data sets whose rows say whose they are

__all__ = ["DATASETS", "NATURAL", "Dataset"]
