"""FedProx (Li et al. 2020): stay near the round's global model, eq. 6 of Shi."""

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import cross_entropy

from moonfed.core.algorithm import Preset
from moonfed.core.rules import LocalRule, setting
from moonfed.core.tree import squared_distance
from moonfed.core.types import Outputs, StepContext, Tensors


@dataclass(frozen=True)
class FedProxLocal(LocalRule):
    """Cross-entropy plus mu/2 ||w - w_t||^2 over all parameters; buffers are excluded."""

    mu: float = setting(0.01, "weight of the proximal term", ge=0)

    def loss(self, out: Outputs, y: Tensor, ctx: StepContext) -> Tensors:
        distance = squared_distance(ctx.weights, ctx.state.model.weights)
        return {"supervised": cross_entropy(out.logits, y), "proximal": self.mu / 2 * distance}


PRESET = Preset("fedprox", FedProxLocal)
