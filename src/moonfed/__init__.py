"""moonfed: federated learning on non-IID data, built round MOON."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moonfed.api import (
        Algorithm,
        Callback,
        Classifier,
        Comparison,
        Dataset,
        Predictions,
        Result,
        Run,
        RunFailed,
        Start,
        UserError,
        centralised,
        compare,
        export,
        fedavg,
        fedavgm,
        fednova,
        fedprox,
        fit,
        load,
        median,
        moon,
        moon_l2,
        partition,
        predict,
        scaffold,
        scaffold_niid,
        solo,
        trimmed_mean,
    )
    from moonfed.api.sklearn import MoonClassifier

__version__ = "0.1.0"

__all__ = [
    "Algorithm",
    "Callback",
    "Classifier",
    "Comparison",
    "Dataset",
    "MoonClassifier",
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


def __getattr__(name: str) -> Any:
    """Load the library when something of it is first asked for: the command line has a word to say before torch."""
    if name not in __all__:
        raise AttributeError(f"module 'moonfed' has no attribute '{name}'")
    if name == "MoonClassifier":  # scikit-learn takes a while to load
        from moonfed.api.sklearn import MoonClassifier

        return MoonClassifier
    from moonfed import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
