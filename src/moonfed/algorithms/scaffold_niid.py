"""SCAFFOLD as NIID-Bench runs it, for comparison: random start, correction after the step, buffers corrected too."""

from dataclasses import dataclass

from moonfed.core.algorithm import Preset
from moonfed.core.rules import Aggregator, LocalRule
from moonfed.core.tree import add, prefixed, scale, sub, under
from moonfed.core.types import (
    InitModel,
    PartyInfo,
    Population,
    Slots,
    Snapshot,
    State,
    StepContext,
    Tensors,
    Trained,
    Update,
    Upload,
    as_tensors,
)


def floats(model: Snapshot) -> Tensors:
    """Return every floating-point entry of a model, buffers included, integer counters excluded."""
    entries = prefixed("weights", model.weights) | prefixed("buffers", model.buffers)
    return {k: v for k, v in entries.items() if v.is_floating_point()}


@dataclass(frozen=True)
class ScaffoldNiidLocal(LocalRule):
    """y <- y - lr (c - c_i) after each step; c_i+ = c_i - c + (x - y) / (K lr), K the number of steps."""

    needs = frozenset({"state_control"})
    gives = frozenset({"state_control_change"})
    needs_sgd = "its control variates are the mean gradients of SGD's steps"

    def init_memory(self, state: State, info: PartyInfo, init_model: InitModel) -> Slots:
        return {"state_control": floats(init_model("control"))}

    def after_step(self, model: Snapshot, ctx: StepContext) -> Snapshot:
        pull = sub(as_tensors(ctx.state.sent, "state_control"), as_tensors(ctx.memory, "state_control"))
        after = floats(model) | sub(floats(model), scale(pull, ctx.optim.lr))
        return Snapshot(under("weights", after), model.buffers | under("buffers", after))

    def finish(self, trained: Trained, ctx: StepContext) -> tuple[Slots, Slots]:
        moved = sub(floats(ctx.state.model), floats(trained.model))
        applied = scale(moved, 1 / (ctx.optim.lr * trained.steps))
        old = as_tensors(ctx.memory, "state_control")
        new = add(sub(old, as_tensors(ctx.state.sent, "state_control")), applied)
        return {"state_control_change": sub(new, old)}, {"state_control": new}


@dataclass(frozen=True)
class ScaffoldNiidAggregator(Aggregator):
    """FedAvg's mean of models, and c <- c + (1/N) sum of the cohort's changes, N the number of parties."""

    needs = frozenset({"state_control_change"})
    gives = frozenset({"state_control"})

    def init(self, model: Snapshot, init_model: InitModel, population: Population) -> Slots:
        return {"state_control": floats(init_model("control"))}

    def contribute(self, upload: Upload, info: PartyInfo, share: float) -> Tensors:
        change = as_tensors(upload.slots, "state_control_change")
        return super().contribute(upload, info, share) | prefixed("state_control", change)

    def update(self, state: State, total: Tensors, population: Population) -> Update | None:
        change = scale(under("state_control", total), 1 / population.parties)
        update = super().update(state, total, population)
        return update and update._replace(sent={"state_control": add(as_tensors(state.sent, "state_control"), change)})


PRESET = Preset("scaffold-niid", ScaffoldNiidLocal, ScaffoldNiidAggregator)
