"""The package as a library: what moonfed/__init__.py offers."""

from moonfed.api.algorithm_functions import (
    centralised,
    fedavg,
    fedavgm,
    fednova,
    fedprox,
    median,
    moon,
    moon_l2,
    scaffold,
    scaffold_niid,
    solo,
    trimmed_mean,
)
from moonfed.api.callbacks import Callback, Start
from moonfed.api.classifier import Classifier
from moonfed.api.export import export
from moonfed.api.fit import compare, fit
from moonfed.api.partitioning import partition
from moonfed.api.predict import Predictions, load, predict
from moonfed.api.results import Comparison, Result, Run
from moonfed.core.errors import RunFailed, UserError
from moonfed.core.rules import Algorithm
from moonfed.data.dataset import Dataset

__all__ = [
    "Algorithm",
    "Callback",
    "Classifier",
    "Comparison",
    "Dataset",
    "Predictions",
    "Result",
    "Run",
    "RunFailed",
    "Start",
    "UserError",
    "centralised",
    "compare",
    "export",
    "fedavg",
    "fedavgm",
    "fednova",
    "fedprox",
    "fit",
    "load",
    "median",
    "moon",
    "moon_l2",
    "partition",
    "predict",
    "scaffold",
    "scaffold_niid",
    "solo",
    "trimmed_mean",
]
