"""FedDisco (Ye et al. 2023): parties whose classes are far from even count less than their rows say.

p_k is proportional to max(0, n_k / n - a d_k / sum_j d_j + b), d_k = KL(class shares of party k || even
shares), n and the sums over the cohort. a = b = 0 is FedAvg. Where every p_k would be 0, which the authors'
code does not handle, FedAvg's shares are used. The server sees each party's class counts and update, so this is
no sum.
"""

import math
from dataclasses import dataclass

from moonfed.core.algorithm import Preset
from moonfed.core.reduction import mean_update
from moonfed.core.rules import Aggregator, setting
from moonfed.core.types import PartyInfo, Population, ReceivedUpload, State, Update


@dataclass(frozen=True)
class FedDiscoAggregator(Aggregator):
    """The mean update with weights of rows and of how even a party's classes are."""

    linear = False
    discrepancy_weight: float = setting(0.5, "a, how much uneven classes count", ge=0)
    discrepancy_offset: float = setting(0.1, "b, added to every party's weight", ge=0)

    def reduce(self, state: State, received: dict[int, ReceivedUpload], population: Population) -> Update:
        weights = self.weights([each.share for each in received.values()], [each.info for each in received.values()])
        weighted = [each._replace(share=weight) for each, weight in zip(received.values(), weights, strict=True)]
        return mean_update(self, state, weighted, population)

    def weights(self, shares: list[float], infos: list[PartyInfo]) -> list[float]:
        """Return the weights of a cohort's parties; they sum to one."""
        rows, uneven = sum(shares), [discrepancy(info.class_counts) for info in infos]
        whole = sum(uneven) or 1.0
        a, b = self.discrepancy_weight, self.discrepancy_offset
        raw = [max(0.0, n / rows - a * d / whole + b) for n, d in zip(shares, uneven, strict=True)]
        raw = raw if sum(raw) else shares
        return [value / sum(raw) for value in raw]


def discrepancy(class_counts: tuple[int, ...]) -> float:
    """Return the Kullback-Leibler divergence of a party's class shares from even ones."""
    rows, classes = sum(class_counts), len(class_counts)
    return sum(n / rows * math.log(n * classes / rows) for n in class_counts if n)  # exactly 0 for even classes


PRESET = Preset("feddisco", aggregator=FedDiscoAggregator)
