"""FedLC (Zhang et al. 2022): a margin for classes that a party has few rows of.

Loss = CE(logits - tau n_c^(-1/4), y), n_c the party's rows of class c; 0 rows count as 1e-8, which masks the
class (-100 tau). The printed loss leaves the true class out of the denominator and is unbounded; like every
port, this is the ordinary softmax. Models are tested on plain logits.
"""

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import cross_entropy

from moonfed.core.algorithm import Preset
from moonfed.core.rules import LocalRule, setting
from moonfed.core.types import Outputs, StepContext, Tensors

FLOOR = 1e-8  # rows of a class that a party lacks


@dataclass(frozen=True)
class FedLCLocal(LocalRule):
    """Cross-entropy of the logits minus tau over the fourth root of the party's class counts."""

    margin: float = setting(1.0, "tau, the margin of a class with one row", ge=0)

    def loss(self, out: Outputs, y: Tensor, ctx: StepContext) -> Tensors:
        margins = self.margin * ctx.party.class_counts.clamp(min=FLOOR) ** -0.25
        return {"supervised": cross_entropy(out.logits - margins, y)}


PRESET = Preset("fedlc", FedLCLocal)
