"""A stack on a GPU: gathering and step are captured as CUDA graphs, compiled ones as soon as there are any."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from moonfed.core.tree import tree_map
from moonfed.core.types import Tensors
from moonfed.data.batches import BatchPlan
from moonfed.engines.base import EngineOptions
from moonfed.engines.cuda.compiler import NO_MEMORY, Compilation, Compiled, StackFunction, try_compile
from moonfed.engines.stacked.anchors import Anchors
from moonfed.engines.stacked.graph_cache import first_line
from moonfed.engines.stacked.lanes import LaneState, Stack, copied, copy_into, gather_batches, inverse
from moonfed.engines.stacked.stack_spec import StackSpec
from moonfed.engines.step import Batch, Carry, Fixed, step

logger = logging.getLogger(__name__)


class CaptureError(Exception):
    """A function cannot be captured as a CUDA graph, for example because it branches on values."""


class CudaGraphStack(Stack):
    """A stack whose tensors keep their addresses from round to round, as CUDA graphs require."""

    def __init__(
        self, spec: StackSpec, width: int, chunk: int, like: LaneState, plan: BatchPlan, options: EngineOptions
    ) -> None:
        super().__init__(spec, width, chunk, like)
        self.compile, self.wait = options.compile, options.wait_for_compiler
        self.plan = BatchPlan(*(part.new_zeros(width, chunk, *part.shape[2:]) for part in plan))
        self.position = torch.zeros(1, dtype=torch.int64, device=plan.rows.device)  # the step within the chunk
        self.gather_graph: torch.cuda.CUDAGraph | None = None
        self.step_graph: torch.cuda.CUDAGraph | None = None
        self.parts: Tensors = {}  # [lane, step]
        self.compilation: Compilation | None = None
        self.compiled: dict[str, Compiled] = {}

    def start_round(self, max_rows: int | None) -> None:
        """Prepare for a round; from the one after the compiler's end on, compiled code is recorded and replayed."""
        super().start_round(max_rows)
        if self.compile and not self.wait and self.step_graph is not None:
            self._compile_meanwhile()
        if self.compilation is not None and self.compilation.done.is_set():
            self.compiled, self.compilation = self.compilation.compiled, None
            if "gather" in self.compiled:
                self.gather_graph = None
            if "step" in self.compiled:
                self.step_graph = None
                logger.info("%d lanes are compiled: from now on rounds are faster", self.width)

    def gather_chunk(self, plan: BatchPlan, index: Tensor, busy: int) -> None:
        """Gather and augment the next chunk, with its anchor outputs."""
        copy_into(self.plan, plan)
        if self.batches is None:
            self.batches = gather_batches(self.spec, self.lanes.anchors, self.plan, self.tables is None)
            if self.tables is not None:
                self.batches = self.batches._replace(anchors=tree_map(torch.clone, self.tables.lookup(index)))
        if self.gather_graph is None:
            self.gather_graph = self._capture("gather", _gather, self._gather_trees())
        self.gather_graph.replay()
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
            self.step_graph = self._capture("step", _step, self._step_trees())
            copy_into(self.lanes.carry, before)
            self.position.zero_()
        self.step_graph.replay()

    def chunk_losses(self) -> Tensors:
        """Return the losses of the chunk's steps: [lane, step] by part."""
        return tree_map(torch.clone, self.parts)

    def _gather_trees(self) -> Any:
        return self.lanes.anchors, self.plan, self.batches

    def _step_trees(self) -> Any:
        return self.lanes.carry, self.lanes.fixed, self.batches, self.parts, self.position

    def _compile_meanwhile(self) -> None:
        """Have both functions compiled while training goes on, from the second round on: the first is done sooner."""
        self.compile = False
        logger.info("%d lanes are compiled while training goes on", self.width)
        work = {"gather": (_gather, self._gather_trees()), "step": (_step, self._step_trees())}
        try:
            self.compilation = Compilation(self.spec, work, self.position.device)
        except torch.OutOfMemoryError:
            logger.info(NO_MEMORY)

    def _capture(self, name: str, function: StackFunction, trees: Any) -> torch.cuda.CUDAGraph:
        """Capture a function that reads and writes only these trees, compiled if that is possible or done."""
        if self.compile and self.wait:
            logger.info("compiling the %s of %d lanes; this takes up to a minute, once per machine", name, self.width)
            if compiled := try_compile(name, function, self.spec, trees):
                self.compiled[name] = compiled
        if run := self.compiled.pop(name, None):
            try:
                return self._record(partial(run, trees))
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                logger.info("the %s runs uncompiled: its code cannot be captured: %s", name, first_line(error))
        try:
            return self._record(partial(function, self.spec, *trees))
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # CUDA's errors of a capture; a bug in Python has another class
            raise CaptureError(first_line(error)) from error

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
        # The compiler's thread may use the GPU meanwhile.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"), torch.no_grad():
            function()
        return graph


def _gather(spec: StackSpec, anchors: Anchors, plan: BatchPlan, batches: Batch) -> None:
    cached = bool(batches.anchors) and not spec.data.augmentation.changes
    gathered = gather_batches(spec, anchors, plan, not cached)
    _write(batches._replace(anchors={}) if cached else batches, gathered)


def _step(spec: StackSpec, carry: Carry, fixed: Fixed, batches: Batch, parts: Tensors, position: Tensor) -> None:
    batch = tree_map(lambda t: _at_step(t, position), batches)
    after, losses = step(spec.nets, spec.local, spec.optimizer, spec.clip, spec.vectorize, carry, batch, fixed)
    _write(carry, after)
    for k, v in losses.items():
        parts[k].index_copy_(1, position, v[:, None])
    position.add_(1)


def _at_step(of_chunk: Tensor, position: Tensor) -> Tensor:
    """Copy one step of [lane, step, ...], with its axes in the same order in memory.

    An index that is a tensor of one element does not make the GPU wait.
    """
    order = sorted(range(of_chunk.dim()), key=lambda axis: -of_chunk.stride(axis))
    step = of_chunk.permute(order).index_select(order.index(1), position)
    return step.permute(inverse(order)).squeeze(1)


def _write(into: Any, values: Any) -> None:
    """Write a tree's values into another's tensors, one by one.

    torch's operations on lists of tensors are not used: compiled for a GPU (torch 2.11), they left the largest weight
    of a net unchanged or filled it with noise.
    """
    tree_map(lambda old, new: old.copy_(new), into, values)
