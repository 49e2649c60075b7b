"""Ditto (Li, Hu, Beirami & Smith 2021): beside FedAvg's model every party trains one of its own, drawn towards it.

w is FedAvg's. v_i is private: v_i <- v_i - lr (grad F_i(v_i) + lambda (v_i - w_t)), w_t the model that the party
received, on the batches that train w. v_i begins as the first model received and is kept from round to round, its
momentum is not. lambda 0 is training alone; with lr lambda = 1 and no momentum a step ends at w_t - lr grad
F_i(v_i). v_i is what is evaluated, on rows like the party's own.
"""

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import cross_entropy

from moonfed.core.algorithm import Preset
from moonfed.core.rules import LocalRule, setting
from moonfed.core.tree import squared_distance
from moonfed.core.types import (
    InitModel,
    Outputs,
    PartyInfo,
    Slots,
    Snapshot,
    State,
    StepContext,
    Tensors,
    Trained,
    as_snapshot,
)

PERSONAL = "personal"  # the slot of v_i


@dataclass(frozen=True)
class DittoPersonalLocal(LocalRule):
    """Cross-entropy of the party's own model plus lambda/2 ||v - w_t||^2."""

    pull: float  # lambda

    def init_memory(self, state: State, info: PartyInfo, init_model: InitModel) -> Slots:
        return {PERSONAL: state.model}

    def start(self, state: State, memory: Slots) -> Snapshot:
        return as_snapshot(memory, PERSONAL)

    def loss(self, out: Outputs, y: Tensor, ctx: StepContext) -> Tensors:
        distance = squared_distance(ctx.weights, ctx.state.model.weights)
        return {"supervised": cross_entropy(out.logits, y), "proximal": self.pull / 2 * distance}

    def finish(self, trained: Trained, ctx: StepContext) -> tuple[Slots, Slots]:
        return {}, {PERSONAL: trained.model}


@dataclass(frozen=True)
class DittoLocal(LocalRule):
    """Plain training of the global model, with the party's own model as companion."""

    own_rows = True
    pull: float = setting(0.1, "lambda, pull of the party's own model towards the global one", ge=0)

    @property
    def companion(self) -> LocalRule:
        return DittoPersonalLocal(self.pull)

    def finish(self, trained: Trained, ctx: StepContext) -> tuple[Slots, Slots]:
        return {}, {}  # the companion remembers

    def personal(self, state: State, memory: Slots) -> Snapshot:
        return as_snapshot(memory, PERSONAL) if PERSONAL in memory else state.model


PRESET = Preset("ditto", DittoLocal)
