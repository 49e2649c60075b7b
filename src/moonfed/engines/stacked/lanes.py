"""A stack: its lanes, what they hold, and how they gather a chunk of steps and take one."""

from typing import NamedTuple

import torch
from torch import Tensor

from moonfed.core.tree import copied, copy_into, tree_map
from moonfed.core.types import Tensors
from moonfed.data.augment import gather
from moonfed.data.batches import BatchPlan
from moonfed.engines.dropout import seed_step
from moonfed.engines.stacked.anchors import AnchorOutputs, Anchors, AnchorTables, forward_chunk
from moonfed.engines.stacked.stack_spec import StackSpec
from moonfed.engines.step import Batch, Carry, Fixed, step


class LaneState(NamedTuple):
    """What a lane holds for the party in it; with a leading lane axis, what all lanes hold."""

    carry: Carry
    fixed: Fixed
    anchors: Anchors


class Stack:
    """Executes the lanes of a stack one operation at a time."""

    def __init__(self, spec: StackSpec, width: int, chunk: int, like: LaneState) -> None:
        self.spec, self.width, self.chunk = spec, width, chunk
        self.lanes: LaneState = tree_map(lambda t: t.new_zeros(width, *t.shape), like)
        self.tables: AnchorTables | None = None
        self.batches: Batch | None = None  # of the chunk: [lane, step, ...]
        self.losses: list[Tensors] = []

    def start_round(self, max_rows: int | None) -> None:
        """Prepare for a round; max_rows is the most rows of a party if anchor outputs are looked up, else None."""
        self.tables = None if max_rows is None else AnchorTables(self.width, max_rows)

    def load_lane(self, lane: int, state: LaneState, outputs: AnchorOutputs | None = None) -> None:
        """Put a party into a lane, with its anchors' outputs where they are looked up."""
        copy_into(tree_map(lambda t: t[lane], self.lanes), state)
        if self.tables is not None and outputs is not None:
            self.tables.store(lane, outputs)

    def read_lane(self, lane: int) -> Carry:
        """Copy the model and velocity of the party in a lane."""
        return copied(tree_map(lambda t: t[lane], self.lanes.carry))

    def gather_chunk(self, plan: BatchPlan, index: Tensor, busy: int) -> None:
        """Gather and augment the next chunk with its anchor outputs; only the first busy lanes are still in use."""
        if busy < self.width:
            self.lanes, self.width = tree_map(lambda t: t[:busy], self.lanes), busy
        plan = BatchPlan(*(part[:busy] for part in plan))
        self.batches = gather_batches(self.spec, self.lanes.anchors, plan, self.tables is None)
        if self.tables is not None:
            self.batches = self.batches._replace(anchors=self.tables.lookup(index[:busy]))
        self.losses = []

    def step(self) -> None:
        """Take the next step of the chunk."""
        assert self.batches is not None
        batch = tree_map(lambda t: t[:, len(self.losses)], self.batches)
        spec, lanes = self.spec, self.lanes
        if spec.ops is None:
            seed_step(spec.nets.training, batch.key)

        def function(carry: Carry, batch: Batch, fixed: Fixed) -> tuple[Carry, Tensors]:
            return stacked_step(spec, carry, batch, fixed)

        trees = (lanes.carry, batch, lanes.fixed)
        carry, parts = function(*trees) if spec.graphs is None else spec.graphs.run(spec.key, function, trees)
        self.lanes = lanes._replace(carry=carry)
        self.losses.append(parts)

    def chunk_losses(self) -> Tensors:
        """Return the losses of the chunk's steps: [lane, step] by part."""
        return {k: torch.stack([parts[k] for parts in self.losses], 1) for k in self.losses[0]}


def stacked_step(spec: StackSpec, carry: Carry, batch: Batch, fixed: Fixed) -> tuple[Carry, Tensors]:
    """Take one step in every lane."""
    return step(spec.nets.training, spec.local, carry, batch, fixed, spec.clip, spec.vectorize)


@torch.no_grad()
def gather_batches(spec: StackSpec, anchors: Anchors, plan: BatchPlan, with_anchors: bool) -> Batch:
    """Gather and augment the batches of a plan, with anchor outputs if asked: [lane, step, batch, ...]."""
    x, y = gather(spec.data, plan, spec.dtype, spec.ops.arrange if spec.ops else None)
    return Batch(x, y, forward_chunk(spec, anchors, x) if with_anchors else {}, plan.keys)
