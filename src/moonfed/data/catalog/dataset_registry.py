"""The data sets that have a name, and how each is loaded."""

from collections.abc import Callable
from functools import partial

from moonfed.data.catalog.cache import load_images
from moonfed.data.catalog.digits import digits
from moonfed.data.catalog.file_sets import FILE_SETS, load_file
from moonfed.data.catalog.image_sets import IMAGE_SETS
from moonfed.data.dataset import Dataset

DATASETS: dict[str, Callable[[], Dataset]] = {
    "digits": digits,
    **{name: partial(load_images, entry) for name, entry in IMAGE_SETS.items()},
    **{name: partial(load_file, entry) for name, entry in FILE_SETS.items()},
}

NATURAL_DATASETS = frozenset(FILE_SETS)  # data sets whose rows name their party
