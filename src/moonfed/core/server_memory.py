"""A server optimiser for aggregators that compute the step themselves, and what to remember for the next one."""

from dataclasses import dataclass

from moonfed.core.averaging import moved
from moonfed.core.rules import ServerOptimizer
from moonfed.core.tree import zeros_like
from moonfed.core.types import Slots, Snapshot, State, Update


@dataclass(frozen=True)
class RememberingOptimizer(ServerOptimizer):
    """Adds the update and keeps what the aggregator computes for it, named in needs; zeros before the first round."""

    def init(self, model: Snapshot) -> Slots:
        """Return zeros like the weights."""
        return {name: zeros_like(model.weights) for name in self.needs}

    def step(self, state: State, update: Update) -> State:
        """Move the state by an update and remember what came with it."""
        return moved(state, update.delta, update)._replace(server_state=update.for_optimizer)
