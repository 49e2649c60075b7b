"""The ablation of the MOON paper's section 4.7, eq. 6: the distance to the global representation as second term."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from moonfed.core.algorithm import Preset
from moonfed.core.rules import LocalRule, setting
from moonfed.core.types import Outputs, Slots, Snapshot, State, StepContext, Tensors

ROUNDING = 1e-4


@dataclass(frozen=True)
class MoonL2Local(LocalRule):
    """Cross-entropy plus mu ||z - z_glob||_2, the norm not squared, averaged over the batch."""

    mu: float = setting(0.1, "weight of the l2 representation term", ge=0)

    def anchors(self, state: State, memory: Slots) -> dict[str, Snapshot]:
        return {"global": state.model}

    def loss(self, out: Outputs, y: Tensor, ctx: StepContext) -> Tensors:
        # The norm has no gradient at zero, where every round starts: rounding errors would choose a direction of full
        # length. Below ROUNDING the norm is smoothed, so that the first step is FedAvg's on every device.
        gap = out.projection - ctx.anchors["global"].projection
        length = torch.sqrt((gap**2).sum(-1) + ROUNDING**2) - ROUNDING
        return {"supervised": cross_entropy(out.logits, y), "distance": self.mu * length.mean()}


PRESET = Preset("moon-l2", MoonL2Local)
