"""SOLO: every party trains a model of its own on its own rows, and nothing is ever sent."""

from dataclasses import dataclass

from moonfed.core.rules import LocalRule, Server
from moonfed.core.tree import zeros_like
from moonfed.core.types import (
    InitModel,
    Optim,
    PartyInfo,
    Population,
    Slots,
    Snapshot,
    State,
    Tensors,
    Trained,
    Upload,
    as_snapshot,
    as_tensors,
)


@dataclass(frozen=True)
class SoloLocal(LocalRule):
    """Plain SGD on the party's own model, with one optimiser from the first round to the last."""

    # Not slots but a promise in both directions: a server that averaged these models would make nonsense of them.
    needs = gives = frozenset({"solitude"})
    own = "model"

    def init_memory(self, state: State, facts: PartyInfo, fresh: InitModel) -> Slots:
        model = fresh(f"party{facts.party}")
        return {"model": model, "velocity": zeros_like(model.weights)}

    def start(self, state: State, party: Slots) -> Snapshot:
        return as_snapshot(party, "model")

    def velocity(self, state: State, party: Slots) -> Tensors:
        return as_tensors(party, "velocity")

    def finish(self, trained: Trained, optim: Optim, state: State, party: Slots) -> tuple[Slots, Slots]:
        return {}, {"model": trained.model, "velocity": trained.velocity}


@dataclass(frozen=True)
class Silent(Server):
    """A server that takes nothing and sends nothing."""

    needs = gives = frozenset({"solitude"})

    def contribute(self, upload: Upload, facts: PartyInfo, share: float) -> Tensors:
        return {}

    def step(self, state: State, total: Tensors, population: Population) -> State:
        return state
