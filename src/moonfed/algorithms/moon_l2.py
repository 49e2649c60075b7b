"""The ablation of the MOON paper's section 4.7, eq. 6: the distance to the global representation as second term."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from moonfed.core.rules import LocalRule, setting
from moonfed.core.types import Outputs, Slots, Snapshot, State, Tensors

NOISE = 1e-4


@dataclass(frozen=True)
class MoonL2Local(LocalRule):
    """Cross-entropy plus mu ||z - z_glob||_2, the norm not squared, its mean over the batch."""

    mu: float = setting(0.1, "weight of the l2 representation term", ge=0)

    def anchors(self, state: State, party: Slots) -> dict[str, Snapshot]:
        return {"global": state.model}

    def loss(
        self, out: Outputs, y: Tensor, weights: Tensors, anchors: dict[str, Outputs], state: State, party: Slots
    ) -> Tensors:
        # The norm has no gradient at zero, where every round starts: rounding noise would choose a direction of full
        # length. Below NOISE the norm is rounded off, so that the first step is FedAvg's on every device.
        gap = out.projection - anchors["global"].projection
        length = torch.sqrt((gap**2).sum(-1) + NOISE**2) - NOISE
        return {"supervised": cross_entropy(out.logits, y), "distance": self.mu * length.mean()}
