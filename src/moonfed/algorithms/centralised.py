"""Centralised training: all rows in one place, one optimiser from the first round to the last."""

from dataclasses import dataclass

from moonfed.core.rules import LocalRule, Preset
from moonfed.core.tree import zeros_like
from moonfed.core.types import InitModel, PartyInfo, Slots, State, StepContext, Tensors, Trained, as_tensors


@dataclass(frozen=True)
class CentralisedLocal(LocalRule):
    """Plain SGD whose momentum buffers persist from round to round."""

    def init_memory(self, state: State, info: PartyInfo, init_model: InitModel) -> Slots:
        return {"velocity": zeros_like(state.model.weights)}

    def velocity(self, state: State, memory: Slots) -> Tensors:
        return as_tensors(memory, "velocity")

    def finish(self, trained: Trained, ctx: StepContext) -> tuple[Slots, Slots]:
        return {}, {"velocity": trained.velocity}


PRESET = Preset("centralised", CentralisedLocal, pooled=True)
