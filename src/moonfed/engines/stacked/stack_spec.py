"""What all lanes of a stack share."""

from collections.abc import Hashable
from typing import Any, NamedTuple

import torch

from moonfed.core.rules import LocalRule
from moonfed.core.tree import tree_map
from moonfed.data.dataset import Dataset
from moonfed.engines.base import Nets
from moonfed.engines.local_optimizer import SGD, LocalOptimizer
from moonfed.engines.stacked.graph_cache import GraphCache
from moonfed.engines.stacked.stacked_ops import StackedOps
from moonfed.engines.step import Vectorize

CPU_CACHE_BYTES = 6 * 2**20  # for the widest layer of all lanes: with more, a CPU waits for its memory

MIN_LANES = 2  # of stacked lanes on a CPU, whose kernels for one lane give other bits than for more


class StackSpec(NamedTuple):
    """The static part of a stack: networks, data, rule, optimiser, and how its functions are executed."""

    nets: Nets
    data: Dataset
    local: LocalRule
    ops: StackedOps | None  # None: one lane, without vmap
    clip: bool = False  # whether gradients are clipped
    optimizer: LocalOptimizer = SGD
    key: Hashable = None  # the shape of its jobs; identifies the step in the graph cache
    graphs: GraphCache | None = None  # None: steps are not traced

    @property
    def vectorize(self) -> Vectorize:
        """Turns a function of one lane into a function of the stack's lanes."""
        return _single_lane_axis if self.ops is None else self.ops.vectorize

    @property
    def dtype(self) -> torch.dtype:
        """The type of the weights and the inputs."""
        return next(iter(self.nets.training.parameters())).dtype


def _single_lane_axis(function: Any) -> Any:
    """Turn a function of one lane into a function of a stack of one lane."""

    def run(*trees: Any) -> Any:
        return tree_map(lambda t: t[None], function(*tree_map(lambda t: t[0], trees)))

    return run
