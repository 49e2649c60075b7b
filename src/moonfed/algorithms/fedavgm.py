"""FedAvgM (Hsu et al. 2019): momentum at the server, on top of any local rule."""

from dataclasses import dataclass

from moonfed.algorithms.fedavg import mean_of, moved, weighed
from moonfed.core.rules import Server, setting
from moonfed.core.tree import add, scale, zeros_like
from moonfed.core.types import InitModel, PartyInfo, Population, Slots, Snapshot, State, Tensors, Upload, as_tensors


@dataclass(frozen=True)
class Momentum(Server):
    """v <- b v + (1 - b) delta as the MOON authors run it, or v <- b v + delta as published; w <- w + v."""

    server_momentum: float = setting(0.7, "b, the server's momentum", ge=0, lt=1)
    momentum_form: str = setting(
        "damped", "damped: b v + (1 - b) delta, the authors'; plain: b v + delta", choices=("damped", "plain")
    )

    def init(self, model: Snapshot, fresh: InitModel) -> tuple[Slots, Slots]:
        return {}, {"velocity": zeros_like(model.weights)}

    def contribute(self, upload: Upload, facts: PartyInfo, share: float) -> Tensors:
        return weighed(upload.delta, upload.buffers, share)

    def step(self, state: State, total: Tensors, population: Population) -> State:
        gain = 1 - self.server_momentum if self.momentum_form == "damped" else 1.0
        old = scale(as_tensors(state.kept, "velocity"), self.server_momentum)
        velocity = add(old, scale(mean_of("delta", total), gain))
        return State(moved(state.model, velocity, total), state.sent, {"velocity": velocity})
