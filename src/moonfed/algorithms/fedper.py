"""FedPer (Arivazhagan et al. 2019): every party keeps an output layer of its own; the rest is averaged.

With w = (w_B, w_P), w_P the output layer: a party trains both together from (w_B, w_P_i) and keeps w_P_i; the
server averages w_B <- sum_i (n_i / n) w_B_i. With the whole model shared it is FedAvg. The models are judged on
rows like the party's own, so the accuracies are no rivals of a global model's.
"""

from dataclasses import dataclass

from moonfed.core.algorithm import Preset
from moonfed.core.rules import LocalRule


@dataclass(frozen=True)
class FedPerLocal(LocalRule):
    """Plain training; the output layer stays at the party."""

    private = frozenset({"head"})
    own_rows = True


PRESET = Preset("fedper", FedPerLocal)
