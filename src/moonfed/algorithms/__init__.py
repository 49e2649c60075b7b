"""Every algorithm by name: one file each, one line here."""

from typing import NamedTuple

from moonfed.algorithms.centralised import Continued
from moonfed.algorithms.fedavg import Average, Plain
from moonfed.algorithms.fedavgm import Momentum
from moonfed.algorithms.fednova import Normalised
from moonfed.algorithms.fedprox import Proximal
from moonfed.algorithms.median import Median
from moonfed.algorithms.moon import Contrastive
from moonfed.algorithms.moon_l2 import Distance
from moonfed.algorithms.scaffold import Controlled, ControlMean
from moonfed.algorithms.scaffold_niid import ControlSum, Nudged
from moonfed.algorithms.solo import Alone, Silent
from moonfed.algorithms.trimmed_mean import TrimmedMean
from moonfed.core.algorithm import Local, Server


class Pair(NamedTuple):
    """The two rules of an algorithm, and whether it trains on all rows pooled in one place."""

    local: type[Local]
    server: type[Server]
    pooled: bool = False


ALGORITHMS: dict[str, Pair] = {
    "centralised": Pair(Continued, Average, pooled=True),
    "fedavg": Pair(Plain, Average),
    "fedavgm": Pair(Plain, Momentum),
    "fednova": Pair(Plain, Normalised),
    "fedprox": Pair(Proximal, Average),
    "median": Pair(Plain, Median),
    "moon": Pair(Contrastive, Average),
    "moon-l2": Pair(Distance, Average),
    "scaffold": Pair(Controlled, ControlMean),
    "scaffold-niid": Pair(Nudged, ControlSum),
    "solo": Pair(Alone, Silent),
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
