"""SCAFFOLD (Karimireddy et al. 2020), in the form that is correct with momentum and parties of unequal size."""

from dataclasses import dataclass

from moonfed.core.algorithm import Preset
from moonfed.core.rules import Aggregator, LocalRule
from moonfed.core.tree import add, prefixed, scale, sub, under, zeros_like
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


@dataclass(frozen=True)
class ScaffoldLocal(LocalRule):
    """g <- g - c_i + c before momentum; afterwards c_i is the mean gradient that the party applied."""

    needs = frozenset({"control"})
    gives = frozenset({"control_change"})
    needs_sgd = "its control variates are the mean gradients of SGD's steps"

    def init_memory(self, state: State, info: PartyInfo, init_model: InitModel) -> Slots:
        return {"control": zeros_like(state.model.weights)}

    def transform_gradient(self, grads: Tensors, ctx: StepContext) -> Tensors:
        return add(sub(grads, as_tensors(ctx.memory, "control")), as_tensors(ctx.state.sent, "control"))

    def finish(self, trained: Trained, ctx: StepContext) -> tuple[Slots, Slots]:
        # c_i+ = c_i - c + (x - y) / (lr a_i): a_i in place of the step count, since with momentum each gradient
        # counts about 1 / (1 - momentum) times.
        moved = sub(ctx.state.model.weights, trained.model.weights)
        applied = scale(moved, 1 / (ctx.optim.lr * trained.effective_steps))
        old = as_tensors(ctx.memory, "control")
        new = add(sub(old, as_tensors(ctx.state.sent, "control")), applied)
        return {"control_change": sub(new, old)}, {"control": new}


@dataclass(frozen=True)
class ScaffoldAggregator(Aggregator):
    """FedAvg's mean of models, and c <- c + sum_i (n_i / n) (c_i+ - c_i), n over all parties."""

    needs = frozenset({"control_change"})
    gives = frozenset({"control"})

    def init(self, model: Snapshot, init_model: InitModel, population: Population) -> Slots:
        return {"control": zeros_like(model.weights)}

    def contribute(self, upload: Upload, info: PartyInfo, share: float) -> Tensors:
        change = scale(as_tensors(upload.slots, "control_change"), float(info.rows))
        return super().contribute(upload, info, share) | prefixed("control", change)

    def update(self, state: State, total: Tensors, population: Population) -> Update | None:
        change = scale(under("control", total), 1 / population.rows)
        update = super().update(state, total, population)
        return update and update._replace(sent={"control": add(as_tensors(state.sent, "control"), change)})


PRESET = Preset("scaffold", ScaffoldLocal, ScaffoldAggregator)
