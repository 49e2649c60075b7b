"""FedAdagrad (Reddi et al. 2021, algorithm 2): FedAdam whose squares are added up, so that its steps only get smaller.

v <- v + D^2. Adagrad is usually run without momentum, so b1 is 0 by default.
"""

from dataclasses import dataclass

from torch import Tensor

from moonfed.core.algorithm import Preset
from moonfed.core.rules import setting
from moonfed.server_optimizers.adam import AdaptiveOptimizer


@dataclass(frozen=True)
class AdagradOptimizer(AdaptiveOptimizer):
    """Divide by the root of the sum of squares."""

    server_beta1: float = setting(0.0, "b1, decay of the mean of past updates", ge=0, lt=1)

    def next_square(self, v: Tensor, d: Tensor) -> Tensor:
        return v + d**2


PRESET = Preset("fedadagrad", server_optimizer=AdagradOptimizer, part="adagrad")
