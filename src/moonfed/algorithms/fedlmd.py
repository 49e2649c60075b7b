"""FedLMD (Lu et al. 2023): distil the global model's scores of the classes that a party has few rows of.

A class is a majority class of a party if it has more rows than the mean over all classes. Loss = CE + beta
tau^2 KL(q || l): q the global softmax without majority classes and the true class, l the local one without the
true class. Without a teacher (FedLMD-Tf) q is even over the same classes and costs no forward pass.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from moonfed.algorithms.fedntd import divergence
from moonfed.core.algorithm import Preset
from moonfed.core.rules import LocalRule, setting
from moonfed.core.types import Outputs, Slots, Snapshot, State, StepContext, Tensors

TEACHERS = ("global", "none")


@dataclass(frozen=True)
class FedLMDLocal(LocalRule):
    """Cross-entropy plus beta times the label-masking distillation."""

    beta: float = setting(1.0, "weight of the distillation", ge=0)
    temperature: float = setting(1.0, "tau, the temperature of the distillation", gt=0)
    teacher: str = setting("global", "global: the global model; none: even scores (FedLMD-Tf)", choices=TEACHERS)

    def anchors(self, state: State, memory: Slots) -> dict[str, Snapshot]:
        return {"global": state.model} if self.teacher == "global" else {}

    def loss(self, out: Outputs, y: Tensor, ctx: StepContext) -> Tensors:
        counts, student = ctx.party.class_counts, out.logits / self.temperature
        true = one_hot(y, out.logits.shape[-1]).bool()
        majority = counts * len(counts) > counts.sum()  # [class]; exact, unlike a comparison with the mean
        taught = ctx.anchors["global"].logits if self.teacher == "global" else torch.zeros_like(out.logits)
        distilled = divergence(taught / self.temperature, student, true | majority, true).mean()
        return {
            "supervised": cross_entropy(out.logits, y),
            "distillation": self.beta * self.temperature**2 * distilled,
        }


PRESET = Preset("fedlmd", FedLMDLocal)
