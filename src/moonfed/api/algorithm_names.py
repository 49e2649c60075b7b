"""The algorithms' functions by name: moon, fedavg, fedprox and so on.

Type checkers read algorithm_names.pyi, which python tools/write_algorithm_stub.py writes from the registry.
"""

from moonfed.api.algorithm_functions import FUNCTIONS

globals().update(FUNCTIONS)
__all__ = sorted(FUNCTIONS)  # pyright: ignore[reportUnsupportedDunderAll]
