"""The ablation of the MOON paper's section 4.7, eq. 6: the distance to the global representation as second term."""

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import cross_entropy

from moonfed.core.algorithm import Local, setting
from moonfed.core.tree import vector_norm
from moonfed.core.types import Outputs, Slots, Snapshot, State, Tensors


@dataclass(frozen=True)
class Distance(Local):
    """Cross-entropy plus mu ||z - z_glob||_2, the norm not squared, its mean over the batch."""

    mu: float = setting(0.1, "weight of the l2 representation term", ge=0)

    def anchors(self, state: State, party: Slots) -> dict[str, Snapshot]:
        return {"global": state.model}

    def loss(
        self, out: Outputs, y: Tensor, weights: Tensors, anchors: dict[str, Outputs], state: State, party: Slots
    ) -> Tensors:
        gap = vector_norm(out.projection - anchors["global"].projection, dim=-1)
        return {"supervised": cross_entropy(out.logits, y), "distance": self.mu * gap.mean()}
