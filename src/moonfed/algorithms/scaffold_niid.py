"""SCAFFOLD as NIID-Bench runs it, for comparison: random start, correction after the step, buffers corrected too."""

from dataclasses import dataclass

from moonfed.algorithms.fedavg import Average, weighed
from moonfed.core.rules import LocalRule, Server
from moonfed.core.tree import add, prefixed, scale, sub, under
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
    as_tensors,
)


def floats(model: Snapshot) -> Tensors:
    """Take every floating-point entry of a model, buffers included, integer counters left out."""
    entries = prefixed("weights", model.weights) | prefixed("buffers", model.buffers)
    return {k: v for k, v in entries.items() if v.is_floating_point()}


@dataclass(frozen=True)
class ScaffoldNiidLocal(LocalRule):
    """y <- y - lr (c - c_i) after each step; c_i+ = c_i - c + (x - y) / (K lr), K the number of steps."""

    needs = frozenset({"state_control"})
    gives = frozenset({"state_control_change"})

    def init_memory(self, state: State, facts: PartyInfo, fresh: InitModel) -> Slots:
        return {"state_control": floats(fresh("control"))}

    def after_step(self, model: Snapshot, optim: Optim, state: State, party: Slots) -> Snapshot:
        pull = sub(as_tensors(state.sent, "state_control"), as_tensors(party, "state_control"))
        after = floats(model) | sub(floats(model), scale(pull, optim.lr))
        return Snapshot(under("weights", after), model.buffers | under("buffers", after))

    def finish(self, trained: Trained, optim: Optim, state: State, party: Slots) -> tuple[Slots, Slots]:
        travelled = scale(sub(floats(state.model), floats(trained.model)), 1 / (optim.lr * trained.steps))
        old = as_tensors(party, "state_control")
        new = add(sub(old, as_tensors(state.sent, "state_control")), travelled)
        return {"state_control_change": sub(new, old)}, {"state_control": new}


@dataclass(frozen=True)
class ControlSum(Server):
    """FedAvg's mean of models, and c <- c + (1/N) sum of the cohort's changes, N the number of parties."""

    needs = frozenset({"state_control_change"})
    gives = frozenset({"state_control"})

    def init(self, model: Snapshot, fresh: InitModel) -> tuple[Slots, Slots]:
        return {"state_control": floats(fresh("control"))}, {}

    def contribute(self, upload: Upload, facts: PartyInfo, share: float) -> Tensors:
        return weighed(upload.delta, upload.buffers, share) | prefixed(
            "state_control", as_tensors(upload.slots, "state_control_change")
        )

    def step(self, state: State, total: Tensors, population: Population) -> State:
        change = scale(under("state_control", total), 1 / population.parties)
        return (
            Average()
            .step(state, total, population)
            ._replace(sent={"state_control": add(as_tensors(state.sent, "state_control"), change)})
        )
