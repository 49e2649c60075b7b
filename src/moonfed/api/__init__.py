"""The package as a library: what moonfed/__init__.py offers."""

from moonfed.api.callbacks import Callback, Start
from moonfed.api.classifier import Classifier
from moonfed.api.fit import compare, fit
from moonfed.api.methods import (
    centralised,
    fedavg,
    fedavgm,
    fednova,
    fedprox,
    moon,
    moon_l2,
    scaffold,
    scaffold_niid,
    solo,
)
from moonfed.api.result import Comparison, Result, Run
from moonfed.api.split import partition
from moonfed.core.algorithm import Algorithm
from moonfed.core.errors import RunFailed, UserError
from moonfed.data.dataset import Dataset

__all__ = [
    "Algorithm",
    "Callback",
    "Classifier",
    "Comparison",
    "Dataset",
    "Result",
    "Run",
    "RunFailed",
    "Start",
    "UserError",
    "centralised",
    "compare",
    "fedavg",
    "fedavgm",
    "fednova",
    "fedprox",
    "fit",
    "moon",
    "moon_l2",
    "partition",
    "scaffold",
    "scaffold_niid",
    "solo",
]
