"""FedAdam (Reddi et al. 2021, algorithm 2): Adam at the server, on top of any local rule.

With D the mean update: m <- b1 m + (1 - b1) D; v <- b2 v + (1 - b2) D^2; w <- w + lr m / (sqrt(v) + tau). As in
the paper there is no bias correction (the authors' code has it). m and v begin at 0 as in that code, in the paper v
begins at tau^2 or more. Buffers are averaged, not adapted.
"""

from dataclasses import dataclass

from torch import Tensor

from moonfed.core.algorithm import Preset
from moonfed.core.averaging import moved
from moonfed.core.rules import ServerOptimizer, setting
from moonfed.core.tree import tree_map, zeros_like
from moonfed.core.types import Slots, Snapshot, State, Tensors, Update, as_tensors


@dataclass(frozen=True)
class AdaptiveOptimizer(ServerOptimizer):
    """Move by the mean of past updates, each entry divided by the root of an average or sum of its squares."""

    server_lr: float = setting(0.03, "the server's learning rate", gt=0)
    server_beta1: float = setting(0.9, "b1, decay of the mean of past updates", ge=0, lt=1)
    server_tau: float = setting(0.001, "tau, added to the root: the larger, the less adaptive", gt=0)

    def init(self, model: Snapshot) -> Slots:
        return {"mean": zeros_like(model.weights), "square": zeros_like(model.weights)}

    def step(self, state: State, update: Update) -> State:
        b1, old = self.server_beta1, state.server_state
        mean: Tensors = tree_map(lambda m, d: b1 * m + (1 - b1) * d, as_tensors(old, "mean"), update.delta)
        square: Tensors = tree_map(self.next_square, as_tensors(old, "square"), update.delta)
        step: Tensors = tree_map(lambda m, v: self.server_lr * m / (v.sqrt() + self.server_tau), mean, square)
        return moved(state, step, update)._replace(server_state={"mean": mean, "square": square})

    def next_square(self, v: Tensor, d: Tensor) -> Tensor:
        """Return v after an update d."""
        raise NotImplementedError


@dataclass(frozen=True)
class AdamOptimizer(AdaptiveOptimizer):
    """Divide by the root of the mean of squares."""

    server_beta2: float = setting(0.99, "b2, decay of the mean of their squares", ge=0, lt=1)

    def next_square(self, v: Tensor, d: Tensor) -> Tensor:
        return self.server_beta2 * v + (1 - self.server_beta2) * d**2


PRESET = Preset("fedadam", server_optimizer=AdamOptimizer, part="adam")
