"""A stack's step captured once as a CUDA graph and replayed: the GPU no longer waits for Python."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from moonfed.core.tree import leaves, tree_map
from moonfed.core.types import Tensors
from moonfed.engines.local import Carry, Fixed, Seen

T = TypeVar("T")
Step = Callable[[Carry, Seen, Fixed], tuple[Carry, Tensors]]


class Buffers(NamedTuple):
    """Where a captured step reads and writes: the same memory for every width, of which it takes the first lanes."""

    carry: Carry
    fixed: Fixed
    seen: Seen  # [lane, step, ...], a chunk of steps at once
    losses: Tensors  # [lane, step]
    at: Tensor  # int64 [1]: the step within the chunk


class GraphedStack:
    """The static memory of one stack and its captured steps, one a width."""

    def __init__(self, step: Step, carry: Carry, fixed: Fixed, seen: Seen) -> None:
        self.step = step
        carry, fixed, seen = tree_map(torch.clone, (carry, fixed, seen))
        lanes, steps = seen.y.shape[:2]
        _, parts = step(carry, _at(seen, torch.zeros(1, dtype=torch.int64, device=seen.y.device)), fixed)
        losses = {k: v.new_zeros(lanes, steps) for k, v in parts.items()}
        self.all = Buffers(carry, fixed, seen, losses, torch.zeros(1, dtype=torch.int64, device=seen.y.device))
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}

    def load(self, carry: Carry, fixed: Fixed) -> None:
        """Bring a new round's lanes in."""
        _copy((self.all.carry, self.all.fixed), (carry, fixed))

    def run(self, width: int, seen: Seen) -> Tensors:
        """Take a chunk's steps with the first lanes; return their losses, [lane, step] by part."""
        steps = seen.y.shape[1]
        _copy(_first(self.all.seen, width, steps), seen)
        graph = self.graphs.get(width) or self._capture(width)
        self.all.at.zero_()
        for _ in range(steps):
            graph.replay()
        return {k: v[:width, :steps].clone() for k, v in self.all.losses.items()}

    def _capture(self, width: int) -> torch.cuda.CUDAGraph:
        mine = self.all._replace(
            **{k: _first(getattr(self.all, k), width) for k in ("carry", "fixed", "seen", "losses")}
        )
        before = tree_map(torch.clone, mine.carry)
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(2):  # libraries choose their kernels and take their memory before the capture
                mine.at.zero_()
                self._one(mine)
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        pool = next(iter(self.graphs.values())).pool() if self.graphs else None
        mine.at.zero_()
        with torch.cuda.graph(graph, pool=pool):
            self._one(mine)
        _copy(mine.carry, before)
        self.graphs[width] = graph
        return graph

    def _one(self, mine: Buffers) -> None:
        after, parts = self.step(mine.carry, _at(mine.seen, mine.at), mine.fixed)
        _copy(mine.carry, after)
        for k, v in parts.items():
            mine.losses[k].index_copy_(1, mine.at, v[:, None])
        mine.at.add_(1)


def _at(seen: Seen, at: Tensor) -> Seen:
    """Take one step of a chunk; an index that is a tensor of one element does not make the GPU wait."""
    return tree_map(lambda t: t.index_select(1, at).squeeze(1), seen)


def _first(tree: T, lanes: int, steps: int | None = None) -> T:
    return tree_map(lambda t: t[:lanes] if steps is None else t[:lanes, :steps], tree)


def _copy(into: Any, values: Any) -> None:
    for old, new in zip(leaves(into), leaves(values), strict=True):
        old.copy_(new)
