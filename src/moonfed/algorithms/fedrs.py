"""FedRS (Li & Zhan 2021): scale down the scores of classes that a party has no rows of.

Loss = CE(f_c logits_c, y), f_c = 1 where the party has rows of class c, else alpha; alpha 1 is FedAvg. The
authors' code scales held classes by their shares too and leaves the bias out; this is the printed form, as in
the ports.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from moonfed.core.algorithm import Preset
from moonfed.core.rules import LocalRule, setting
from moonfed.core.types import Outputs, StepContext, Tensors


@dataclass(frozen=True)
class FedRSLocal(LocalRule):
    """Cross-entropy of the restricted softmax: the score of a missing class counts alpha times."""

    alpha: float = setting(0.5, "factor on the scores of classes that a party lacks; 1 is FedAvg", ge=0, le=1)

    def loss(self, out: Outputs, y: Tensor, ctx: StepContext) -> Tensors:
        held = ctx.party.class_counts > 0  # [class]
        return {"supervised": cross_entropy(torch.where(held, out.logits, self.alpha * out.logits), y)}


PRESET = Preset("fedrs", FedRSLocal)
