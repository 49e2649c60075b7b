"""The stacked engine: lanes (trial x party) as a leading axis, one vectorised step for all of them."""

from collections.abc import Hashable, Sequence
from dataclasses import fields
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import vmap

from moonfed.core.algorithm import Local
from moonfed.core.tree import pack, tree_map
from moonfed.core.types import Outputs, Snapshot, Tensors
from moonfed.data.augment import gather
from moonfed.data.dataset import Dataset
from moonfed.data.plan import Plan
from moonfed.engines.graphs import GraphedStack, Step
from moonfed.engines.local import (
    CHUNK,
    Carry,
    Done,
    Fixed,
    Job,
    Nets,
    Seen,
    conclude,
    float_settings,
    look,
    on,
    prepare,
    reached,
    step,
)

GRAPHED = 4  # stacks whose graphs and memory are kept
BULK = 2**30  # numbers in the widest layer of a look through the anchors: cuDNN's BatchNorm refuses 2**31 and more


class Stacked:
    """Runs all jobs of one shape as one stack; on a GPU its step is captured as a graph and replayed."""

    def __init__(self, nets: Nets, data: Dataset) -> None:
        self.nets, self.data = nets, data
        self.graphed: dict[Hashable, GraphedStack] = {}
        convolutions = [layer for layer in nets.training.modules() if isinstance(layer, nn.Conv2d)]
        self.widest = max((layer.out_channels for layer in convolutions), default=1)

    def run_cohort(self, jobs: Sequence[Job]) -> list[Done]:
        """Train every job's party; results come in the order of the jobs."""
        stacks: dict[Hashable, list[int]] = {}
        for i, job in enumerate(jobs):
            stacks.setdefault(_shape_of(job), []).append(i)
        done: dict[int, Done] = {}
        for shape, members in stacks.items():
            # Longest first: the lanes still at work are always a prefix, and the stack only ever gets narrower.
            order = sorted(members, key=lambda i: -len(jobs[i].plan.rows))
            for i, result in zip(order, self._run(shape, [jobs[i] for i in order]), strict=True):
                done[i] = result
        return [done[i] for i in range(len(jobs))]

    def _run(self, shape: Hashable, jobs: Sequence[Job]) -> list[Done]:
        prepared = [prepare(job) for job in jobs]
        carry, fixed, anchors = (tree_map(_stack, *parts) for parts in zip(*prepared, strict=True))
        lengths = [len(job.plan.rows) for job in jobs]
        plan = on(self.data, _padded([job.plan for job in jobs]))
        steps = self._steps((shape, len(jobs)), jobs[0].local, carry, fixed)
        history: list[Tensors] = []
        ended: list[Carry] = []
        first = 0
        while first < lengths[0]:
            width = sum(length > first for length in lengths)
            ended = steps.leave(width) + ended
            last = min(first + CHUNK, lengths[width - 1])
            piece = Plan(*(part[:width, first:last] for part in plan))
            history.append(steps.take(self._see(tree_map(lambda t, w=width: t[:w], anchors), piece)))
            first = last
        ended = steps.leave(0) + ended
        return [
            conclude(job, end, made[1], loss, reached(self.nets, self.data, job, end.model))
            for job, end, made, loss in zip(jobs, ended, prepared, _by_lane(history, len(jobs)), strict=True)
        ]

    def _steps(self, key: Hashable, local: Local, carry: Carry, fixed: Fixed) -> "_Steps":
        one_step = partial(step, self.nets.training, local, each=vmap)
        if not self.data.images.is_cuda:
            return _Steps(one_step, carry, fixed)
        return _Graphed(one_step, carry, fixed, self.graphed, key)

    def _see(self, anchors: dict[str, Snapshot], plan: Plan) -> Seen:
        """Gather and augment a chunk, and look at it through the anchors in bulk: [lane, step, batch, ...]."""
        dtype = next(iter(self.nets.training.parameters())).dtype
        x, y = gather(self.data, plan, dtype)
        at_once = max(1, BULK // (x[:, 0].numel() // x.shape[3] * self.widest))
        looks = vmap(partial(look, self.nets.frozen))
        seen_by = {k: [looks(a, piece.flatten(1, 2)) for piece in x.split(at_once, 1)] for k, a in anchors.items()}
        joined = {k: (torch.cat(parts, 1) for parts in zip(*pieces, strict=True)) for k, pieces in seen_by.items()}
        return Seen(x, y, {k: Outputs(*(part.unflatten(1, y.shape[1:]) for part in out)) for k, out in joined.items()})


class _Steps:
    """The lanes of a stack at work, one vectorised step after the other."""

    def __init__(self, one_step: Step, carry: Carry, fixed: Fixed) -> None:
        self.one_step, self.carry, self.fixed = one_step, carry, fixed

    def leave(self, width: int) -> list[Carry]:
        """Go on with the first lanes, and return those behind them one by one."""
        lanes = len(next(iter(self.carry.model.weights.values())))
        rest = [tree_map(lambda t, i=i: t[i].clone(), self.carry) for i in range(width, lanes)]
        self.carry, self.fixed = tree_map(lambda t: t[:width], (self.carry, self.fixed))
        return rest

    def take(self, seen: Seen) -> Tensors:
        """Take a chunk's steps; return their losses, [lane, step] by part."""
        history: list[Tensors] = []
        for s in range(seen.y.shape[1]):
            self.carry, parts = self.one_step(self.carry, tree_map(lambda t, s=s: t[:, s], seen), self.fixed)
            history.append(parts)
        return {k: torch.stack([parts[k] for parts in history], 1) for k in history[0]}


class _Graphed(_Steps):
    """The same with the step as a CUDA graph, kept from round to round."""

    def __init__(
        self, one_step: Step, carry: Carry, fixed: Fixed, kept: dict[Hashable, GraphedStack], key: Hashable
    ) -> None:
        super().__init__(one_step, carry, fixed)
        self.kept, self.key, self.begun = kept, key, False

    def take(self, seen: Seen) -> Tensors:
        if self.key not in self.kept:
            while len(self.kept) >= GRAPHED:  # the oldest makes room
                del self.kept[next(iter(self.kept))]
            self.kept[self.key] = GraphedStack(self.one_step, self.carry, self.fixed, _whole_chunk(seen))
        stack = self.kept[self.key]
        if not self.begun:
            stack.load(self.carry, self.fixed)
            self.carry, self.begun = stack.all.carry, True
        return stack.run(seen.y.shape[0], seen)


def _whole_chunk(seen: Seen) -> Seen:
    """Widen a chunk to its full number of steps: what a later, longer one needs room for."""
    short = CHUNK - seen.y.shape[1]
    return tree_map(lambda t: torch.cat([t, t[:, :1].expand(-1, short, *t.shape[2:])], 1), seen) if short else seen


def _shape_of(job: Job) -> Hashable:
    """Say which jobs may share a stack: the same rule but for its float settings, memories of the same shape."""
    floats = float_settings(job.local)
    rule = tuple((f.name, getattr(job.local, f.name)) for f in fields(job.local) if f.name not in floats)  # type: ignore[arg-type]
    memory = tuple((k, tuple(v.shape)) for k, v in (pack(job.slots) | pack(job.state.sent)).items())
    return type(job.local), rule, memory, job.plan.rows.shape[1]


def _stack(*tensors: Tensor) -> Tensor:
    return torch.stack(tensors)


def _padded(plans: Sequence[Plan]) -> Plan:
    """Stack plans of falling length; a short one is filled up with zeros that no step reads."""
    longest = len(plans[0].rows)

    def fill(part: Tensor) -> Tensor:
        return torch.cat([part, part.new_zeros(longest - len(part), *part.shape[1:])])

    return Plan(*(torch.stack([fill(part) for part in parts]) for parts in zip(*plans, strict=True)))


def _by_lane(history: list[Tensors], lanes: int) -> list[Tensors]:
    """Join the losses of all chunks, each [lane, step], to losses by lane, each [step], on the CPU."""
    chunks = [{k: v.cpu() for k, v in losses.items()} for losses in history]
    return [
        {k: torch.cat([chunk[k][lane] for chunk in chunks if lane < len(chunk[k])]) for k in chunks[0]}
        for lane in range(lanes)
    ]
