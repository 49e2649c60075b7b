"""FedRep (Collins et al. 2021): first the party's own output layer with the body fixed, then the body with it fixed.

With phi the body and h_i the output layer: h_i <- SGD on F_i(phi_t, h_i), then phi_i <- SGD on F_i(phi_i, h_i),
and phi_{t+1} = sum_i (n_i / n) phi_i. The first part of a round's steps trains h_i, the rest, one step at least,
phi_i; the authors give phi_i one epoch, here its part of the steps is set. Weight decay alone fills the momentum
of the part that is fixed, which is little unless the decay is large. Judged on rows like the party's own.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from moonfed.core.algorithm import Preset
from moonfed.core.rules import LocalRule, setting
from moonfed.core.types import Snapshot, StepContext, Tensors


@dataclass(frozen=True)
class FedRepLocal(LocalRule):
    """Plain training of one part at a time; the other part does not move."""

    private = frozenset({"head"})
    own_rows = True
    trains_in_turns = True
    needs_sgd = "AdamW would count the steps in which a part was fixed"
    head_part: float = setting(0.9, "part of a round's steps that train the output layer", ge=0, le=1)

    def transform_gradient(self, grads: Tensors, ctx: StepContext) -> Tensors:
        head = self._trains_head(ctx)
        return {k: torch.where(head == k.startswith("head."), g, 0.0) for k, g in grads.items()}

    def after_step(self, model: Snapshot, ctx: StepContext) -> Snapshot:
        # Momentum and weight decay would move what has no gradient.
        head = self._trains_head(ctx)
        weights = {k: torch.where(head == k.startswith("head."), w, ctx.weights[k]) for k, w in model.weights.items()}
        return model._replace(weights=weights)

    def _trains_head(self, ctx: StepContext) -> Tensor:
        step, steps = ctx.clock.step, ctx.clock.steps
        body_waits = (step < steps - 1) | (self.head_part >= 1)  # its share of a few steps may round to none
        return (step < self.head_part * steps) & body_waits


PRESET = Preset("fedrep", FedRepLocal)
