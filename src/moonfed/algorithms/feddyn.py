"""FedDyn (Acar et al. 2021), in the form of the authors' code: local objectives whose optima agree.

A party remembers h_i, 0 at first. Its loss is CE + (a_i / 2) ||w - w_t||^2 + a_i <w, h_i>, a_i = alpha n / (N
n_i) for n_i of n rows and N parties; afterwards h_i <- h_i + w_i - w_t. The server keeps h, the mean of all
parties' h_i, and sends m + h, m the plain mean of the cohort's models. The sent model is the tested one, as in
most ports; the authors test m, which tested_model=mean does. alpha 0 is not FedAvg: h does not depend on it.
"""

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import cross_entropy

from moonfed.core.algorithm import Preset
from moonfed.core.rules import Aggregator, LocalRule, setting
from moonfed.core.server_memory import RememberingOptimizer
from moonfed.core.tree import add, dot, scale, squared_distance, sub, zeros_like
from moonfed.core.types import (
    InitModel,
    Outputs,
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
    as_tensor,
    as_tensors,
)


@dataclass(frozen=True)
class FedDynLocal(LocalRule):
    """Cross-entropy, a pull towards the round's model, and a push against the party's drift so far."""

    needs = frozenset({"mean_rows"})
    dynamic: float = setting(0.1, "alpha, weight of the dynamic regulariser", ge=0)

    def init_memory(self, state: State, info: PartyInfo, init_model: InitModel) -> Slots:
        return {"drift": zeros_like(state.model.weights)}

    def loss(self, out: Outputs, y: Tensor, ctx: StepContext) -> Tensors:
        alpha = self.dynamic * as_tensor(ctx.state.sent, "mean_rows") / ctx.party.rows
        return {
            "supervised": cross_entropy(out.logits, y),
            "proximal": alpha / 2 * squared_distance(ctx.weights, ctx.state.model.weights),
            "drift": alpha * dot(ctx.weights, as_tensors(ctx.memory, "drift")),
        }

    def finish(self, trained: Trained, ctx: StepContext) -> tuple[Slots, Slots]:
        away = sub(trained.model.weights, ctx.state.model.weights)
        return {}, {"drift": add(as_tensors(ctx.memory, "drift"), away)}


@dataclass(frozen=True)
class FedDynAggregator(Aggregator):
    """The plain mean of the cohort, whatever its parties' rows; h <- h + (1 / N) sum over the cohort of delta_i."""

    gives = frozenset({"mean_rows"})
    for_optimizer = frozenset({"drift"})
    tested_model: str = setting(
        "sent", "which model is tested and kept: sent, m + h; mean, m as in the authors' code", choices=("sent", "mean")
    )

    def init(self, model: Snapshot, init_model: InitModel, population: Population) -> Slots:
        return {"mean_rows": next(iter(model.weights.values())).new_tensor(population.rows / population.parties)}

    def send(self, state: State, info: PartyInfo) -> State:
        weights = state.model.weights
        if self.tested_model == "mean":
            weights = add(weights, as_tensors(state.server_state, "drift"))
        return super().send(state._replace(model=Snapshot(weights, state.model.buffers)), info)

    def contribute(self, upload: Upload, info: PartyInfo, share: float) -> Tensors:
        return super().contribute(upload, info, 1.0)

    def update(self, state: State, total: Tensors, population: Population) -> Update | None:
        update, old = super().update(state, total, population), as_tensors(state.server_state, "drift")
        if update is None:
            return None
        new = add(old, scale(update.delta, total["share"] / population.parties))
        step = add(update.delta, new if self.tested_model == "sent" else old)
        return update._replace(delta=step, for_optimizer={"drift": new})


@dataclass(frozen=True)
class FedDynOptimizer(RememberingOptimizer):
    """Remembers h."""

    needs = frozenset({"drift"})


PRESET = Preset("feddyn", FedDynLocal, FedDynAggregator, FedDynOptimizer)
