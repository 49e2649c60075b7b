"""FedYogi (Reddi et al. 2021, algorithm 2): FedAdam whose mean of squares moves by D^2 at most, in either direction.

v <- v - (1 - b2) D^2 sign(v - D^2): after a few large updates it falls more slowly than Adam's.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from moonfed.core.algorithm import Preset
from moonfed.server_optimizers.adam import AdamOptimizer


@dataclass(frozen=True)
class YogiOptimizer(AdamOptimizer):
    """Adam with an additive change of the mean of squares."""

    def next_square(self, v: Tensor, d: Tensor) -> Tensor:
        return v - (1 - self.server_beta2) * d**2 * torch.sign(v - d**2)


PRESET = Preset("fedyogi", server_optimizer=YogiOptimizer, part="yogi")
