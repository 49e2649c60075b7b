"""Data sets by name, and how their rows are split between parties."""

from moonfed.data.catalog.dataset_registry import DATASETS, NATURAL_DATASETS
from moonfed.data.dataset import Dataset

__all__ = ["DATASETS", "NATURAL_DATASETS", "Dataset"]
