"""A stack of lanes: executes a schedule by loading parties into lanes, taking steps and reading lanes back."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from moonfed.core.tree import parts_of, rows_of, stack_rows, tree_map
from moonfed.core.types import Tensors
from moonfed.data.augment import gather
from moonfed.data.batches import BatchPlan
from moonfed.engines.dropout import seed_step
from moonfed.engines.stacked.anchors import AnchorCache, AnchorOutputs, Anchors, forward_chunk
from moonfed.engines.stacked.schedule import Assignment, Schedule
from moonfed.engines.stacked.stack_spec import MIN_LANES, StackSpec
from moonfed.engines.stacked.stacked_ops import LaneLayout
from moonfed.engines.step import Batch, Carry, Fixed, step

T = TypeVar("T")


class LaneState(NamedTuple):
    """What a lane holds for the party in it; with a leading lane axis, what all lanes hold."""

    carry: Carry
    fixed: Fixed
    anchors: Anchors


def run_schedule(
    stack: "Stack", schedule: Schedule, plans: Sequence[BatchPlan], states: Sequence[LaneState]
) -> tuple[list[Carry], Iterator[Tensors]]:
    """Run every job in its lanes; return what each job's last step left, and its losses by part.

    A GPU is waited for when the first job's losses are read, so that it has steps to take until then.
    """
    data = stack.spec.data
    plan = arrange_plans(plans, schedule, stack.width, data.inputs.device)
    anchors = [state.anchors for state in states]
    constant = bool(anchors[0]) and not data.augmentation.changes  # an anchor's output for a row is the same all round
    cache = AnchorCache(stack.spec, schedule, plan.rows, anchors, len(data.labels)) if constant else None
    index = plan.rows if cache is None else cache.index
    stack.start_round(None if cache is None else cache.max_rows)
    starts: dict[int, list[Assignment]] = {}
    leaving: dict[int, dict[int, Assignment]] = {}  # by step and lane
    for a in schedule.assignments:
        starts.setdefault(a.lane_step, []).append(a)
        leaving.setdefault(a.lane_step + a.steps, {})[a.lane] = a
    lane_ends = [max(at for at, lanes in leaving.items() if own in lanes) for own in range(schedule.width)]
    reached: dict[int, Carry] = {}
    losses: list[Tensors] = []
    for first in range(0, schedule.steps, schedule.chunk):
        entering = starts.get(first, [])
        outputs = cache.outputs_of(entering) if cache else {}
        stack.load_lanes(
            {a.lane: states[a.job]._replace(carry=reached[a.job]) if a.job_step else states[a.job] for a in entering},
            {a.lane: outputs[a.job] for a in entering if a.job in outputs},
        )
        steps = slice(first, first + schedule.chunk)
        busy = sum(end > first for end in lane_ends)
        stack.gather_chunk(BatchPlan(*(part[:, steps] for part in plan)), index[:, steps], busy)
        for at in range(first + 1, min(first + schedule.chunk, max(lane_ends)) + 1):
            stack.step()
            if pausing := leaving.get(at):
                resumed = any(a.job_step + a.steps < len(plans[a.job].rows) for a in pausing.values())
                read = stack.read_lanes(list(pausing), resumed or stack.spec.local.keeps_optimizer)
                reached |= zip((a.job for a in pausing.values()), read, strict=True)
        losses.append(stack.chunk_losses())
    return [reached[job] for job in range(len(plans))], _losses_by_job(losses, schedule, len(plans))


def arrange_plans(plans: Sequence[BatchPlan], schedule: Schedule, width: int, device: torch.device) -> BatchPlan:
    """Arrange the plans of the jobs by lane, [lane, step, ...]; unused steps repeat the first job's first step."""
    begins = list(accumulate((len(plan.rows) for plan in plans), initial=0))
    source = np.zeros((width, schedule.steps), dtype=np.int64)
    for job, lane, lane_step, job_step, steps in schedule.assignments:
        source[lane, lane_step : lane_step + steps] = range(begins[job] + job_step, begins[job] + job_step + steps)
    flat_source = torch.tensor(source.reshape(-1))

    def arrange(parts: Sequence[Tensor]) -> Tensor:
        joined = torch.cat(list(parts))
        return torch.unflatten(joined.index_select(0, flat_source), 0, source.shape)

    return BatchPlan(*copy_to(device, [arrange(parts) for parts in zip(*plans, strict=True)]))


def copy_to(device: torch.device, parts: Sequence[Tensor]) -> list[Tensor]:
    """Copy the parts of a plan to a device: all whole numbers in one transfer, in half of the bytes, zeros in none."""
    used = [bool(part.any()) for part in parts]
    whole = [part.reshape(-1) for part, own in zip(parts, used, strict=True) if own and part.dtype == torch.int64]
    packed = torch.cat([torch.empty(0, dtype=torch.int64), *whole]).to(torch.int32)  # values are small
    split = iter(parts_of(packed.to(device, non_blocking=True).to(torch.int64), [len(part) for part in whole]))

    def copy(part: Tensor, own: bool) -> Tensor:
        if not own:
            return torch.zeros_like(part, device=device)
        return next(split).view(part.shape) if part.dtype == torch.int64 else part.to(device, non_blocking=True)

    return [copy(part, own) for part, own in zip(parts, used, strict=True)]


class Stack:
    """Executes the lanes of a stack one operation at a time."""

    def __init__(self, spec: StackSpec, width: int, chunk: int, like: LaneState) -> None:
        self.spec, self.width, self.chunk = spec, width, chunk
        self.take_step = partial(step, spec.nets, spec.local, spec.optimizer, spec.clip, spec.vectorize)  # all lanes
        self.lanes: LaneState = tree_map(lambda t: t.new_zeros(width, *t.shape), like)
        self.tables: AnchorTables | None = None
        self.batches: Batch | None = None  # of the chunk: [lane, step, ...]
        self.losses: list[Tensors] = []

    def start_round(self, max_rows: int | None) -> None:
        """Prepare for a round; max_rows is the most rows of a party if anchor outputs are looked up, else None."""
        self.tables = None if max_rows is None else AnchorTables(self.width, max_rows)

    def load_lanes(
        self, states: Mapping[int, LaneState], outputs: Mapping[int, AnchorOutputs] = MappingProxyType({})
    ) -> None:
        """Put parties into lanes, each with its anchors' outputs where they are looked up."""
        fill_lanes(self.lanes, states)
        if self.tables is not None:
            for lane, own in outputs.items():
                self.tables.store(lane, own)

    def gather_chunk(self, plan: BatchPlan, index: Tensor, busy: int) -> None:
        """Gather and augment the next chunk with its anchor outputs; only the first busy lanes are still in use."""
        busy = max(busy, min(MIN_LANES, self.width))
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
        spec, trees = self.spec, (self.lanes.carry, batch, self.lanes.fixed)
        if spec.ops is None:
            seed_step(spec.nets, batch.key)
        if spec.graphs is None:
            carry, parts = self.take_step(*trees)
        else:
            carry, parts = spec.graphs.run(spec.key, self.take_step, trees)
        self.lanes = self.lanes._replace(carry=tree_map(separate_lanes, carry))
        self.losses.append(parts)

    def read_lanes(self, lanes: Sequence[int], with_optimizer: bool = True) -> list[Carry]:
        """Copy the models of the parties in lanes, and the optimisers' states if asked: as rows of one tensor each."""
        carry = self.lanes.carry if with_optimizer else self.lanes.carry._replace(optimizer={})
        first, last = lanes[0], lanes[-1] + 1

        def read(leaf: Tensor) -> Tensor:
            if list(lanes) == list(range(first, last)):
                return leaf[first:last].clone(memory_format=torch.contiguous_format)
            return torch.stack([leaf[lane] for lane in lanes]).contiguous()

        return rows_of(tree_map(read, carry), len(lanes))

    def chunk_losses(self) -> Tensors:
        """Return the losses of the chunk's steps: [lane, step] by part."""
        return {k: torch.stack([parts[k] for parts in self.losses], 1) for k in self.losses[0]}


class AnchorTables:
    """The anchors' outputs for every row of the parties in the lanes, to be looked up."""

    def __init__(self, width: int, rows: int) -> None:
        self.width, self.rows = width, rows
        self.outputs: AnchorOutputs = {}  # [lane, row, ...]

    def store(self, lane: int, outputs: AnchorOutputs) -> None:
        """Store the outputs for the rows of the party in a lane."""
        if not self.outputs:
            self.outputs = tree_map(lambda t: t.new_zeros(self.width, self.rows, *t.shape[1:]), outputs)
        copy_into(tree_map(lambda table, rows: table[lane, : len(rows)], self.outputs, outputs), outputs)

    def lookup(self, index: Tensor) -> AnchorOutputs:
        """Look up rows by their number within the party: [lane, step, batch]."""
        lane = torch.arange(len(index), device=index.device)[:, None, None]
        return tree_map(lambda table: table[lane, index], self.outputs)


@torch.no_grad()
def gather_batches(spec: StackSpec, anchors: Anchors, plan: BatchPlan, with_anchors: bool) -> Batch:
    """Gather and augment the batches of a plan, with anchor outputs if asked: [lane, step, batch, ...]."""
    x, y = gather(spec.data, plan, spec.dtype, partial(arrange_images, spec.ops.layout) if spec.ops else None)
    return Batch(x, y, forward_chunk(spec, anchors, x) if with_anchors else {}, plan.keys, plan.numbers)


def arrange_images(layout: LaneLayout, images: Tensor) -> Tensor:
    """Reorder images [lane, step, batch, channel, height, width] in memory for a layout; their shape stays."""
    order = (1, 2, 4, 5, 0, 3) if layout.channels_last else (1, 2, 0, 3, 4, 5)
    order = (0, 3, 4, 5, 1, 2) if layout.batch_last else order
    return images.permute(order).contiguous().permute(inverse(order))


def inverse(order: Sequence[int]) -> list[int]:
    """Return the order that undoes a permutation of axes."""
    return [order.index(axis) for axis in range(len(order))]


def separate_lanes(lanes: Tensor) -> Tensor:
    """Give each lane memory of its own; vmap lets lanes share what a rule computes without reading theirs."""
    return lanes.contiguous() if lanes.stride(0) == 0 and len(lanes) > 1 else lanes


def fill_lanes(into: LaneState, states: Mapping[int, LaneState]) -> None:
    """Write states into lanes; what neighbouring lanes have in common is written into all of them at once."""
    lanes = list(states)
    if len(lanes) < 2 or lanes != list(range(lanes[0], lanes[0] + len(lanes))):
        for lane, state in states.items():
            copy_into(tree_map(lambda t, lane=lane: t[lane], into), state)
        return

    some = slice(lanes[0], lanes[-1] + 1)

    def fill(all_lanes: Any, values: Sequence[Any]) -> None:
        first = values[0]
        if all(other is first for other in values):
            tree_map(lambda lane, value: lane[some].copy_(value), all_lanes, first)
        elif isinstance(first, Tensor):
            all_lanes[some].copy_(stack_rows(values))
        else:
            for name in all_lanes if isinstance(all_lanes, dict) else range(len(all_lanes)):  # pyright: ignore
                fill(all_lanes[name], [value[name] for value in values])

    fill(into, list(states.values()))


def copy_into(into: Any, values: Any) -> None:
    """Write a tree's values into another's tensors, name by name: the order of names may differ."""
    old: list[Tensor] = []
    new: list[Tensor] = []

    def pair(mine: Tensor, other: Tensor) -> Tensor:
        old.append(mine)
        new.append(other)
        return mine

    tree_map(pair, into, values)
    torch._foreach_copy_(old, new)  # pyright: ignore


def copied(tree: T) -> T:
    """Copy every tensor of a tree, laid out plainly."""
    made = tree_map(lambda t: torch.empty(t.shape, dtype=t.dtype, device=t.device), tree)
    copy_into(made, tree)
    return made


def _losses_by_job(losses: list[Tensors], schedule: Schedule, jobs: int) -> Iterator[Tensors]:
    """Join the losses of the lanes' chunks by job; nothing is copied before the first is asked for."""
    chunks = [{k: part.unbind() for k, part in chunk.items()} for chunk in _copy_to_cpu(losses)]  # by lane
    pieces: list[list[Tensors]] = [[] for _ in range(jobs)]
    for job, lane, lane_step, _, steps in sorted(schedule.assignments, key=lambda a: a.job_step):
        own = chunks[lane_step // schedule.chunk : -(-(lane_step + steps) // schedule.chunk)]
        pieces[job].append({k: _concatenate([chunk[k][lane] for chunk in own])[:steps] for k in chunks[0]})
    yield from ({k: _concatenate([piece[k] for piece in own]) for k in chunks[0]} for own in pieces)


def _concatenate(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _copy_to_cpu(losses: list[Tensors]) -> list[Tensors]:
    """Copy the losses of all chunks, [lane, step] each, to the CPU in one transfer."""
    flat = [part.reshape(-1) for chunk in losses for part in chunk.values()]
    if len({part.dtype for part in flat}) > 1:
        return tree_map(Tensor.cpu, losses)
    split = iter(parts_of(_concatenate(flat).cpu(), [part.numel() for part in flat]))
    return [{k: next(split).view(part.shape) for k, part in chunk.items()} for chunk in losses]
