"""Centralised training: all rows in one place, one optimiser from the first round to the last."""

from dataclasses import dataclass

from moonfed.core.rules import LocalRule
from moonfed.core.tree import zeros_like
from moonfed.core.types import InitModel, Optim, PartyInfo, Slots, State, Tensors, Trained, as_tensors


@dataclass(frozen=True)
class CentralisedLocal(LocalRule):
    """Plain SGD whose momentum lives on from round to round."""

    def init_memory(self, state: State, facts: PartyInfo, fresh: InitModel) -> Slots:
        return {"velocity": zeros_like(state.model.weights)}

    def velocity(self, state: State, party: Slots) -> Tensors:
        return as_tensors(party, "velocity")

    def finish(self, trained: Trained, optim: Optim, state: State, party: Slots) -> tuple[Slots, Slots]:
        return {}, {"velocity": trained.velocity}
