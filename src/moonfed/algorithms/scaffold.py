"""SCAFFOLD (Karimireddy et al. 2020), in the form that is right under momentum and unequal parties."""

from dataclasses import dataclass

from moonfed.algorithms.fedavg import Average, weighed
from moonfed.core.rules import LocalRule, Server
from moonfed.core.tree import add, prefixed, scale, sub, under, zeros_like
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


@dataclass(frozen=True)
class ScaffoldLocal(LocalRule):
    """g <- g - c_i + c before momentum; afterwards c_i is the mean gradient the party really applied."""

    needs = frozenset({"control"})
    gives = frozenset({"control_change"})

    def init_memory(self, state: State, facts: PartyInfo, fresh: InitModel) -> Slots:
        return {"control": zeros_like(state.model.weights)}

    def transform_gradient(self, grads: Tensors, state: State, party: Slots) -> Tensors:
        return add(sub(grads, as_tensors(party, "control")), as_tensors(state.sent, "control"))

    def finish(self, trained: Trained, optim: Optim, state: State, party: Slots) -> tuple[Slots, Slots]:
        # c_i+ = c_i - c + (x - y) / (lr a_i): a_i in place of the step count, since momentum makes each
        # gradient count about 1 / (1 - momentum) times.
        travelled = scale(sub(state.model.weights, trained.model.weights), 1 / (optim.lr * trained.effective_steps))
        old = as_tensors(party, "control")
        new = add(sub(old, as_tensors(state.sent, "control")), travelled)
        return {"control_change": sub(new, old)}, {"control": new}


@dataclass(frozen=True)
class ControlMean(Server):
    """FedAvg's mean of models, and c <- c + sum_i (n_i / n) (c_i+ - c_i), n over all parties."""

    needs = frozenset({"control_change"})
    gives = frozenset({"control"})

    def init(self, model: Snapshot, fresh: InitModel) -> tuple[Slots, Slots]:
        return {"control": zeros_like(model.weights)}, {}

    def contribute(self, upload: Upload, facts: PartyInfo, share: float) -> Tensors:
        change = scale(as_tensors(upload.slots, "control_change"), float(facts.rows))
        return weighed(upload.delta, upload.buffers, share) | prefixed("control", change)

    def step(self, state: State, total: Tensors, population: Population) -> State:
        change = scale(under("control", total), 1 / population.rows)
        return (
            Average()
            .step(state, total, population)
            ._replace(sent={"control": add(as_tensors(state.sent, "control"), change)})
        )
