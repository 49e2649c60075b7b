"""FedACG (Kim, Kim & Han 2024): parties start from where the server's momentum is about to take the model.

The server sends w_t + lambda m_t. Parties train from there with + beta ||w - sent||^2. Then m_{t+1} = lambda
m_t + mean of (w_i - sent) and w_{t+1} = w_t + m_{t+1}, which is the tested model. Nothing more travels than in
FedAvg. The mean is by rows here, plain in the authors' code. lambda 0 is FedProx with mu = 2 beta.
"""

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import cross_entropy

from moonfed.core.algorithm import Preset
from moonfed.core.rules import Aggregator, LocalRule, setting
from moonfed.core.server_memory import RememberingOptimizer
from moonfed.core.tree import add, scale, squared_distance
from moonfed.core.types import (
    Outputs,
    PartyInfo,
    Population,
    Snapshot,
    State,
    StepContext,
    Tensors,
    Update,
    as_tensors,
)


@dataclass(frozen=True)
class FedACGLocal(LocalRule):
    """Cross-entropy plus beta times the squared distance to the model that was sent."""

    beta: float = setting(0.001, "weight of the squared distance to the sent model", ge=0)

    def loss(self, out: Outputs, y: Tensor, ctx: StepContext) -> Tensors:
        distance = squared_distance(ctx.weights, ctx.state.model.weights)
        return {"supervised": cross_entropy(out.logits, y), "proximal": self.beta * distance}


@dataclass(frozen=True)
class FedACGAggregator(Aggregator):
    """Sends the model ahead of its momentum, and adds the momentum to the mean update."""

    for_optimizer = frozenset({"momentum"})
    look_ahead: float = setting(0.85, "lambda, decay of the server's momentum", ge=0, lt=1)

    def send(self, state: State, info: PartyInfo) -> State:
        momentum = self._momentum(state)  # of the weights that travel
        ahead = {k: w + momentum[k] if k in momentum else w for k, w in state.model.weights.items()}
        return super().send(state._replace(model=Snapshot(ahead, state.model.buffers)), info)

    def update(self, state: State, total: Tensors, population: Population) -> Update | None:
        update = super().update(state, total, population)
        if update is None:
            return None
        momentum = add(self._momentum(state), update.delta)
        return update._replace(delta=momentum, for_optimizer={"momentum": momentum})

    def _momentum(self, state: State) -> Tensors:
        return scale(as_tensors(state.server_state, "momentum"), self.look_ahead)


@dataclass(frozen=True)
class FedACGOptimizer(RememberingOptimizer):
    """w <- w + m, and m is remembered."""

    needs = frozenset({"momentum"})


PRESET = Preset("fedacg", FedACGLocal, FedACGAggregator, FedACGOptimizer)
