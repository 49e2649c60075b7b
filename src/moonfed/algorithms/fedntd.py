"""FedNTD (Lee et al. 2022): keep the global model's scores among the classes that a row does not belong to.

Loss = CE + beta tau^2 KL(q || l), q and l the global and the local softmax at temperature tau without the true
class, batch mean, gradient through l only. The authors run 100 parties with beta 1 and tau 1; with ten parties
and ten epochs, where the first author expects little of it, try 0.1 to 1.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax, one_hot, softmax

from moonfed.core.algorithm import Preset
from moonfed.core.rules import LocalRule, setting
from moonfed.core.types import Outputs, Slots, Snapshot, State, StepContext, Tensors

HIDDEN = 1e4  # how far below the others a hidden class scores; infinitely far would give gradients that are no numbers


@dataclass(frozen=True)
class FedNTDLocal(LocalRule):
    """Cross-entropy plus beta times the not-true distillation."""

    beta: float = setting(1.0, "weight of the distillation", ge=0)
    temperature: float = setting(1.0, "tau, the temperature of the distillation", gt=0)

    def anchors(self, state: State, memory: Slots) -> dict[str, Snapshot]:
        return {"global": state.model}

    def loss(self, out: Outputs, y: Tensor, ctx: StepContext) -> Tensors:
        true = one_hot(y, out.logits.shape[-1]).bool()
        teacher, student = ctx.anchors["global"].logits / self.temperature, out.logits / self.temperature
        distilled = divergence(teacher, student, true, true).mean()
        return {
            "supervised": cross_entropy(out.logits, y),
            "distillation": self.beta * self.temperature**2 * distilled,
        }


def divergence(teacher: Tensor, student: Tensor, hide_teacher: Tensor, hide_student: Tensor) -> Tensor:
    """Return KL(teacher || student) of each row, [batch]; each softmax is over the classes that are not hidden.

    A row whose teacher has no class left counts 0.
    """
    shown = _hidden(teacher, hide_teacher)
    gap = log_softmax(shown, -1) - log_softmax(_hidden(student, hide_student), -1)
    return torch.where(hide_teacher, 0.0, softmax(shown, -1) * gap).sum(-1)


def _hidden(scores: Tensor, hide: Tensor) -> Tensor:
    """Take classes out of a softmax, however low the scores of the others are."""
    return torch.where(hide, scores.detach().amin(-1, keepdim=True) - HIDDEN, scores)


PRESET = Preset("fedntd", FedNTDLocal)
