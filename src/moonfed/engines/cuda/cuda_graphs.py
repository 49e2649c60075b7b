"""A stack on a GPU: its look and its step compiled, captured once as CUDA graphs and replayed without Python."""

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from moonfed.core.tree import copied, copy_into, leaves, tree_map
from moonfed.core.types import Tensors
from moonfed.data.batches import BatchPlan
from moonfed.engines.stacked.graph_cache import flat_graph
from moonfed.engines.stacked.lanes import LaneState, Stack, StackSpec, see
from moonfed.engines.step import step

logger = logging.getLogger(__name__)


class CannotCapture(Exception):
    """What a stack does cannot be captured: it asks the GPU for a number and decides by it, say."""


class GraphedStack(Stack):
    """The same lanes in memory that never moves, kept from round to round."""

    def __init__(
        self,
        work: StackSpec,
        width: int,
        chunk: int,
        like: LaneState,
        window: BatchPlan,
        compile: bool,
    ) -> None:
        super().__init__(work, width, chunk, like)
        self.compile = compile
        self.window = BatchPlan(*(part.new_zeros(width, chunk, *part.shape[2:]) for part in window))
        self.place = torch.zeros(1, dtype=torch.int64, device=window.rows.device)  # the step within the chunk
        self.looking: torch.cuda.CUDAGraph | None = None
        self.stepping: torch.cuda.CUDAGraph | None = None
        self.parts: Tensors = {}  # [lane, step]

    def look(self, window: BatchPlan, index: Tensor, busy: int) -> None:
        """Gather and augment a chunk, and see it through the anchors."""
        copy_into(self.window, window)
        if self.looking is None:
            self.seen = see(self.work, self.held.anchors, self.window, self.tables is None)
            if self.tables is not None:
                self.seen = self.seen._replace(anchors=tree_map(torch.clone, self.tables.say(index)))
            self.looking = self._captured("look", _look, (self.held.anchors, self.window, self.seen))
        self.looking.replay()
        assert self.seen is not None
        if self.tables is not None:
            copy_into(self.seen.anchors, self.tables.say(index))
        self.place.zero_()

    def step(self) -> None:
        """Take the next step of the chunk."""
        if self.stepping is None:
            assert self.seen is not None
            before = copied(self.held.carry)
            now = tree_map(lambda t: t[:, 0], self.seen)
            work, held = self.work, self.held
            _, parts = step(work.nets.training, work.local, held.carry, now, held.fixed, work.clip, work.each)
            self.parts = {k: v.new_zeros(self.width, self.chunk) for k, v in parts.items()}
            trees = (self.held.carry, self.held.fixed, self.seen, self.parts, self.place)
            self.stepping = self._captured("step", _step, trees)
            copy_into(self.held.carry, before)
            self.place.zero_()
        self.stepping.replay()

    def chunk_losses(self) -> Tensors:
        """Return the losses of the steps taken since the last look: [lane, step] by part."""
        return tree_map(torch.clone, self.parts)

    def _captured(self, name: str, act: Callable[..., None], trees: Any) -> torch.cuda.CUDAGraph:
        """Capture a function that reads and writes only these trees."""

        def plain() -> None:
            act(self.work, *trees)

        acting = plain
        if self.compile:
            logger.info(f"compiling the {name} of {self.width} lanes; this takes up to a minute, once on a machine")
            try:
                acting = compiled(lambda *trees: act(self.work, *trees), trees)
                acting()
            except Exception as error:  # whatever the compiler cannot do, the plain operations can
                acting = plain
                logger.info(f"the {name} runs uncompiled: {type(error).__name__}: {str(error).splitlines()[0][:200]}")
        try:
            return self._capture(acting)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            raise CannotCapture(str(error).strip().splitlines()[0][:160]) from error

    def _capture(self, act: Callable[[], None]) -> torch.cuda.CUDAGraph:
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside), torch.no_grad():
            for _ in range(2):  # libraries choose their kernels and take their memory before the capture
                self.place.zero_()
                act()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        self.place.zero_()
        with torch.cuda.graph(graph), torch.no_grad():
            act()
        return graph


def compiled(act: Callable[..., None], trees: Any) -> Callable[[], None]:
    """Flatten a function that writes into trees to one graph of plain operations, and compile that."""
    graph, _ = flat_graph(act, trees)
    flat = leaves(trees)
    with torch.no_grad():
        fast = torch.compile(graph, fullgraph=True, dynamic=False)

    def run() -> None:
        with torch.no_grad():
            fast(*flat)

    return run


def _look(work: StackSpec, anchors: Any, window: BatchPlan, seen: Any) -> None:
    cached = bool(seen.anchors) and not work.data.recipe.changes
    found = see(work, anchors, window, not cached)
    _write(seen._replace(anchors={}) if cached else seen, found)


def _step(work: StackSpec, carry: Any, fixed: Any, seen: Any, parts: Tensors, place: Tensor) -> None:
    # An index that is a tensor of one element does not make the GPU wait.
    now = tree_map(lambda t: t.index_select(1, place).squeeze(1), seen)
    after, losses = step(work.nets.training, work.local, carry, now, fixed, work.clip, work.each)
    _write(carry, after)
    for k, v in losses.items():
        parts[k].index_copy_(1, place, v[:, None])
    place.add_(1)


def _write(into: Any, values: Any) -> None:
    """Write a tree's values into another's tensors, one by one.

    Not with torch's operations on lists: compiled for a GPU (torch 2.11) those left the largest weight of a net as it
    was, or full of noise.
    """
    tree_map(lambda old, new: old.copy_(new), into, values)
