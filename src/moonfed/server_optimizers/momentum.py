"""FedAvgM (Hsu et al. 2019): momentum at the server, on top of any local rule."""

from dataclasses import dataclass

from moonfed.core.algorithm import Preset
from moonfed.core.averaging import moved
from moonfed.core.rules import ServerOptimizer, setting
from moonfed.core.tree import add, scale, zeros_like
from moonfed.core.types import Slots, Snapshot, State, Update, as_tensors


@dataclass(frozen=True)
class MomentumOptimizer(ServerOptimizer):
    """v <- b v + (1 - b) delta as the MOON authors run it, or v <- b v + delta as published; w <- w + v."""

    server_momentum: float = setting(0.7, "b, the server's momentum", ge=0, lt=1)
    momentum_form: str = setting(
        "damped", "damped: b v + (1 - b) delta, the authors'; plain: b v + delta", choices=("damped", "plain")
    )

    def init(self, model: Snapshot) -> Slots:
        return {"velocity": zeros_like(model.weights)}

    def step(self, state: State, update: Update) -> State:
        gain = 1 - self.server_momentum if self.momentum_form == "damped" else 1.0
        old = scale(as_tensors(state.server_state, "velocity"), self.server_momentum)
        velocity = add(old, scale(update.delta, gain))
        return moved(state, velocity, update)._replace(server_state={"velocity": velocity})


PRESET = Preset("fedavgm", server_optimizer=MomentumOptimizer, part="momentum")
