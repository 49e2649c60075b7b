"""A stack on a GPU: gathering and step are compiled, captured once as CUDA graphs, and replayed without Python."""

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from moonfed.core.tree import leaves, tree_map
from moonfed.core.types import Tensors
from moonfed.data.batches import BatchPlan
from moonfed.engines.stacked.anchors import Anchors
from moonfed.engines.stacked.graph_cache import first_line, trace
from moonfed.engines.stacked.lanes import LaneState, Stack, copied, copy_into, gather_batches
from moonfed.engines.stacked.stack_spec import StackSpec
from moonfed.engines.step import Batch, Carry, Fixed, step

logger = logging.getLogger(__name__)


class CaptureError(Exception):
    """A function cannot be captured as a CUDA graph, for example because it branches on values."""


class CudaGraphStack(Stack):
    """A stack whose tensors keep their addresses from round to round, as CUDA graphs require."""

    def __init__(
        self, spec: StackSpec, width: int, chunk: int, like: LaneState, plan: BatchPlan, compile: bool
    ) -> None:
        super().__init__(spec, width, chunk, like)
        self.compile = compile
        self.plan = BatchPlan(*(part.new_zeros(width, chunk, *part.shape[2:]) for part in plan))
        self.position = torch.zeros(1, dtype=torch.int64, device=plan.rows.device)  # the step within the chunk
        self.gather_graph: torch.cuda.CUDAGraph | None = None
        self.step_graph: torch.cuda.CUDAGraph | None = None
        self.parts: Tensors = {}  # [lane, step]

    def gather_chunk(self, plan: BatchPlan, index: Tensor, busy: int) -> None:
        """Gather and augment the next chunk, with its anchor outputs."""
        copy_into(self.plan, plan)
        if self.gather_graph is None:
            self.batches = gather_batches(self.spec, self.lanes.anchors, self.plan, self.tables is None)
            if self.tables is not None:
                self.batches = self.batches._replace(anchors=tree_map(torch.clone, self.tables.lookup(index)))
            self.gather_graph = self._capture("gather", _gather, (self.lanes.anchors, self.plan, self.batches))
        self.gather_graph.replay()
        assert self.batches is not None
        if self.tables is not None:
            copy_into(self.batches.anchors, self.tables.lookup(index))
        self.position.zero_()

    def step(self) -> None:
        """Take the next step of the chunk."""
        if self.step_graph is None:
            assert self.batches is not None
            before = copied(self.lanes.carry)
            batch = tree_map(lambda t: t[:, 0], self.batches)
            _, parts = self.take_step(self.lanes.carry, batch, self.lanes.fixed)
            self.parts = {k: v.new_zeros(self.width, self.chunk) for k, v in parts.items()}
            trees = (self.lanes.carry, self.lanes.fixed, self.batches, self.parts, self.position)
            self.step_graph = self._capture("step", _step, trees)
            copy_into(self.lanes.carry, before)
            self.position.zero_()
        self.step_graph.replay()

    def chunk_losses(self) -> Tensors:
        """Return the losses of the chunk's steps: [lane, step] by part."""
        return tree_map(torch.clone, self.parts)

    def _capture(self, name: str, function: Callable[..., None], trees: Any) -> torch.cuda.CUDAGraph:
        """Capture a function that reads and writes only these trees, compiled if possible."""

        def uncompiled() -> None:
            function(self.spec, *trees)

        try:
            return self._record(self._try_compile(name, function, trees) or uncompiled)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # CUDA's errors of a capture; a bug in Python has another class
            raise CaptureError(first_line(error)) from error

    def _try_compile(self, name: str, function: Callable[..., None], trees: Any) -> Callable[[], None] | None:
        """Compile a function and run it once; None if that is not wanted or the compiler cannot do it."""
        if not self.compile:
            return None
        logger.info("compiling the %s of %d lanes; this takes up to a minute, once per machine", name, self.width)
        try:
            compiled = compile_function(lambda *trees: function(self.spec, *trees), trees)
            compiled()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # what the tracer, the compiler (TorchDynamoException) and CUDA raise
            logger.info("the %s runs uncompiled: %s: %s", name, type(error).__name__, first_line(error, 200))
            return None
        return compiled

    def _record(self, function: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """Record a function's operations as a CUDA graph."""
        warm_up = torch.cuda.Stream()
        warm_up.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(warm_up), torch.no_grad():
            for _ in range(2):  # libraries choose their kernels and allocate their memory before the capture
                self.position.zero_()
                function()
        torch.cuda.current_stream().wait_stream(warm_up)
        graph = torch.cuda.CUDAGraph()
        self.position.zero_()
        with torch.cuda.graph(graph), torch.no_grad():
            function()
        return graph


def compile_function(function: Callable[..., None], trees: Any) -> Callable[[], None]:
    """Trace a function that writes into trees to one graph of plain operations, and compile that."""
    graph, _ = trace(function, trees)
    flat = leaves(trees)
    with torch.no_grad():
        compiled: Any = torch.compile(graph, fullgraph=True, dynamic=False)  # pyright: ignore[reportUnknownMemberType]

    def run() -> None:
        with torch.no_grad():
            compiled(*flat)

    return run


def _gather(spec: StackSpec, anchors: Anchors, plan: BatchPlan, batches: Batch) -> None:
    cached = bool(batches.anchors) and not spec.data.augmentation.changes
    gathered = gather_batches(spec, anchors, plan, not cached)
    _write(batches._replace(anchors={}) if cached else batches, gathered)


def _step(spec: StackSpec, carry: Carry, fixed: Fixed, batches: Batch, parts: Tensors, position: Tensor) -> None:
    # An index that is a tensor of one element does not make the GPU wait.
    batch = tree_map(lambda t: t.index_select(1, position).squeeze(1), batches)
    after, losses = step(spec.nets, spec.local, spec.optimizer, spec.clip, spec.vectorize, carry, batch, fixed)
    _write(carry, after)
    for k, v in losses.items():
        parts[k].index_copy_(1, position, v[:, None])
    position.add_(1)


def _write(into: Any, values: Any) -> None:
    """Write a tree's values into another's tensors, one by one.

    torch's operations on lists of tensors are not used: compiled for a GPU (torch 2.11), they left the largest weight
    of a net unchanged or filled it with noise.
    """
    tree_map(lambda old, new: old.copy_(new), into, values)
