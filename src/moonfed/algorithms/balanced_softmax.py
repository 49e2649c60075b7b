"""Balanced softmax (Menon et al. 2021; in federated learning CalFAT, Chen et al. 2022): scores by class shares.

Loss = CE(logits + log(pi_c + 1e-9), y), pi_c the share of class c at the party. A class that a party lacks is
masked (-20.7). Models are tested on plain logits, as if classes were even.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from moonfed.core.algorithm import Preset
from moonfed.core.rules import LocalRule
from moonfed.core.types import Outputs, PartyTensors, StepContext, Tensors

FLOOR = 1e-9  # of a class share


@dataclass(frozen=True)
class BalancedSoftmaxLocal(LocalRule):
    """Cross-entropy of the logits plus the log of the party's class shares."""

    def loss(self, out: Outputs, y: Tensor, ctx: StepContext) -> Tensors:
        return {"supervised": cross_entropy(out.logits + log_shares(ctx.party), y)}


def log_shares(party: PartyTensors) -> Tensor:
    """Return the log of the party's class shares, [class]."""
    return torch.log(party.class_counts / party.rows + FLOOR)


PRESET = Preset("balanced-softmax", BalancedSoftmaxLocal)
