"""FedBN (Li et al. 2021): every party keeps the normalisation layers, with their statistics; the rest is averaged.

w_l <- sum_i (n_i / n) w_l_i for every layer l that normalises nothing; the others, statistics included, stay w_l_i.
For parties whose inputs differ rather than their classes. Layers are found by their type; the authors' code goes by
names with "bn", which misses those of residual shortcuts, and averages plainly where rows weigh here. Without
normalisation layers it is FedAvg, judged on rows like the party's own.
"""

from dataclasses import dataclass

from moonfed.core.algorithm import Preset
from moonfed.core.rules import LocalRule


@dataclass(frozen=True)
class FedBNLocal(LocalRule):
    """Plain training; the normalisation layers stay at the party."""

    private = frozenset({"norm"})
    own_rows = True


PRESET = Preset("fedbn", FedBNLocal)
