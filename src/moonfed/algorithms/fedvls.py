"""FedVLS (Guo et al. 2025): for classes that a party lacks, keep the global model's scores.

pi_c is the share of class c at the party. Three parts: CE(logits + log(pi_c + 1e-9), y); lambda KL(global ||
local), both softmaxes over the vacant classes alone; gamma sum_c pi_c log mean_rows exp([y != c] (logit_c -
log(pi_c + 1e-9) - log C)), which suppresses scores of classes that are not the row's. The last is the authors'
code, whose gamma is 0.005; the paper prints weight 1, no prior, and 0 instead of 1 where y = c.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from moonfed.algorithms.balanced_softmax import log_shares
from moonfed.algorithms.fedntd import divergence
from moonfed.core.algorithm import Preset
from moonfed.core.rules import LocalRule, setting
from moonfed.core.types import Outputs, Slots, Snapshot, State, StepContext, Tensors


@dataclass(frozen=True)
class FedVLSLocal(LocalRule):
    """Balanced softmax, distillation of the vacant classes, and suppression of other classes' logits."""

    distillation: float = setting(0.1, "lambda, weight of the vacant classes' distillation", ge=0)
    suppression: float = setting(0.005, "weight of the suppression of other classes' logits", ge=0)

    def anchors(self, state: State, memory: Slots) -> dict[str, Snapshot]:
        return {"global": state.model}

    def loss(self, out: Outputs, y: Tensor, ctx: StepContext) -> Tensors:
        prior, held = log_shares(ctx.party), (ctx.party.class_counts > 0).expand_as(out.logits)
        vacant = divergence(ctx.anchors["global"].logits, out.logits, held, held).mean()
        rows, classes = out.logits.shape
        others = 1 - one_hot(y, classes).to(out.logits.dtype)
        scores = others * (out.logits - prior - math.log(classes))
        suppressed = (ctx.party.class_counts / ctx.party.rows * (torch.logsumexp(scores, 0) - math.log(rows))).sum()
        return {
            "supervised": cross_entropy(out.logits + prior, y),
            "distillation": self.distillation * vacant,
            "suppression": self.suppression * suppressed,
        }


PRESET = Preset("fedvls", FedVLSLocal)
