"""The package as a library: what moonfed/__init__.py offers. The algorithms' functions come from the registry."""

from moonfed.api import algorithm_names
from moonfed.api.algorithm_names import *  # noqa: F403 (its __all__ is the list of algorithms)
from moonfed.api.classifier import Classifier
from moonfed.api.export import export
from moonfed.api.fit import compare, fit
from moonfed.api.partitioning import partition
from moonfed.api.predict import Predictions, load, predict
from moonfed.api.results import Comparison, Result, Run
from moonfed.core.algorithm import Algorithm
from moonfed.core.errors import RunFailed, UserError
from moonfed.core.rules import Aggregator, LocalRule, ServerOptimizer
from moonfed.data.dataset import Dataset
from moonfed.training.callbacks import Callback

__all__ = [
    "Aggregator",
    "Algorithm",
    "Callback",
    "Classifier",
    "Comparison",
    "Dataset",
    "LocalRule",
    "Predictions",
    "Result",
    "Run",
    "RunFailed",
    "ServerOptimizer",
    "UserError",
    "compare",
    "export",
    "fit",
    "load",
    "partition",
    "predict",
]
__all__ += algorithm_names.__all__
