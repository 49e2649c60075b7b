"""Every algorithm by name: one file each, one line here."""

from typing import NamedTuple

from moonfed.algorithms.centralised import CentralisedLocal
from moonfed.algorithms.fedavg import Average, Plain
from moonfed.algorithms.fedavgm import Momentum
from moonfed.algorithms.fednova import Normalised
from moonfed.algorithms.fedprox import FedProxLocal
from moonfed.algorithms.median import Median
from moonfed.algorithms.moon import MoonLocal
from moonfed.algorithms.moon_l2 import MoonL2Local
from moonfed.algorithms.scaffold import ControlMean, ScaffoldLocal
from moonfed.algorithms.scaffold_niid import ControlSum, ScaffoldNiidLocal
from moonfed.algorithms.solo import Silent, SoloLocal
from moonfed.algorithms.trimmed_mean import TrimmedMean
from moonfed.core.rules import LocalRule, Server


class Pair(NamedTuple):
    """The two rules of an algorithm, and whether it trains on all rows pooled in one place."""

    local: type[LocalRule]
    server: type[Server]
    pooled: bool = False


ALGORITHMS: dict[str, Pair] = {
    "centralised": Pair(CentralisedLocal, Average, pooled=True),
    "fedavg": Pair(Plain, Average),
    "fedavgm": Pair(Plain, Momentum),
    "fednova": Pair(Plain, Normalised),
    "fedprox": Pair(FedProxLocal, Average),
    "median": Pair(Plain, Median),
    "moon": Pair(MoonLocal, Average),
    "moon-l2": Pair(MoonL2Local, Average),
    "scaffold": Pair(ScaffoldLocal, ControlMean),
    "scaffold-niid": Pair(ScaffoldNiidLocal, ControlSum),
    "solo": Pair(SoloLocal, Silent),
    "trimmed-mean": Pair(Plain, TrimmedMean),
}

SERVERS: dict[str, type[Server]] = {
    "fedavg": Average,
    "fedavgm": Momentum,
    "fednova": Normalised,
    "median": Median,
    "scaffold": ControlMean,
    "scaffold-niid": ControlSum,
    "solo": Silent,
    "trimmed-mean": TrimmedMean,
}
