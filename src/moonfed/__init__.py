"""moonfed: federated learning on non-IID data, built round MOON."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moonfed.api import *  # noqa: F403 (api.__all__ is the one list of what is offered)
    from moonfed.api.sklearn_classifier import MoonClassifier as MoonClassifier

__version__ = "0.1.0"

if not TYPE_CHECKING:  # type checkers read the imports above, and see a name that is not there

    def __getattr__(name: str) -> Any:
        """Load the library when something of it is first asked for: the command line has a word to say before torch."""
        if name == "MoonClassifier":  # scikit-learn takes a while to load
            return import_module("moonfed.api.sklearn_classifier").MoonClassifier
        if not name.startswith("_") or name == "__all__":
            api = import_module("moonfed.api")
            if name == "__all__":
                return sorted([*api.__all__, "MoonClassifier"])
            if name in api.__all__:
                return getattr(api, name)
        raise AttributeError(f"module 'moonfed' has no attribute '{name}'")


def __dir__() -> list[str]:
    names: list[str] = import_module("moonfed").__all__
    return [*names, "__version__"]
