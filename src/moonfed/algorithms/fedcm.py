"""FedCM (Xu et al. 2021): every step of every party follows the direction of the last round too.

A step's gradient is alpha g + (1 - alpha) d, d = -mean of delta_i / (lr a_i) over the last cohort, a_i the
party's sum of gradient coefficients (its steps, where there is no momentum). d is sent with the model; parties
remember nothing. Weight decay is not scaled by alpha. alpha 1 is FedAvg; the first round, where d is 0, is
FedAvg's with gradients times alpha.
"""

from dataclasses import dataclass

from moonfed.core.algorithm import Preset
from moonfed.core.averaging import mean_of
from moonfed.core.rules import Aggregator, LocalRule, setting
from moonfed.core.tree import add, prefixed, scale, zeros_like
from moonfed.core.types import (
    InitModel,
    PartyInfo,
    Population,
    Slots,
    Snapshot,
    State,
    StepContext,
    Tensors,
    Update,
    Upload,
    as_tensors,
)


@dataclass(frozen=True)
class FedCMLocal(LocalRule):
    """Cross-entropy with steps towards the mean of its own gradient and the last round's direction."""

    needs = frozenset({"direction"})
    needs_sgd = "its direction is the mean gradient of SGD's steps"
    own_part: float = setting(0.1, "alpha, the party's own part of a step; 1 is FedAvg", gt=0, le=1)

    def transform_gradient(self, grads: Tensors, ctx: StepContext) -> Tensors:
        direction = as_tensors(ctx.state.sent, "direction")
        return add(scale(grads, self.own_part), scale(direction, 1 - self.own_part))


@dataclass(frozen=True)
class FedCMAggregator(Aggregator):
    """FedAvg's mean of models, and the mean gradient that the cohort applied, to be sent."""

    gives = frozenset({"direction"})

    def init(self, model: Snapshot, init_model: InitModel, population: Population) -> Slots:
        return {"direction": zeros_like(model.weights)}

    def contribute(self, upload: Upload, info: PartyInfo, share: float) -> Tensors:
        work = upload.lr * upload.effective_steps
        applied = {k: v * -share / work for k, v in upload.delta.items()}
        return super().contribute(upload, info, share) | prefixed("direction", applied)

    def update(self, state: State, total: Tensors, population: Population) -> Update | None:
        update = super().update(state, total, population)
        return update and update._replace(sent={"direction": mean_of("direction", total)})


PRESET = Preset("fedcm", FedCMLocal, FedCMAggregator)
