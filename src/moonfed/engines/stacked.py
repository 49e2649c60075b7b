"""The stacked engine: lanes (trial x party) as a leading axis, one vectorised step for all of them."""

from collections.abc import Hashable, Sequence
from dataclasses import fields
from functools import partial

import torch
from torch import Tensor
from torch.func import vmap

from moonfed.core.algorithm import Local
from moonfed.core.tree import pack, tree_map
from moonfed.core.types import Outputs, Snapshot, Tensors
from moonfed.data.augment import gather
from moonfed.data.dataset import Dataset
from moonfed.data.plan import Plan
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


class Stacked:
    """Runs all jobs of one shape as one stack."""

    def __init__(self, nets: Nets, data: Dataset) -> None:
        self.nets, self.data = nets, data

    def run_cohort(self, jobs: Sequence[Job]) -> list[Done]:
        """Train every job's party; results come in the order of the jobs."""
        stacks: dict[Hashable, list[int]] = {}
        for i, job in enumerate(jobs):
            stacks.setdefault(_shape_of(job), []).append(i)
        done: dict[int, Done] = {}
        for members in stacks.values():
            # Longest first: the lanes still at work are always a prefix, and the stack only ever gets narrower.
            order = sorted(members, key=lambda i: -len(jobs[i].plan.rows))
            for i, result in zip(order, self._run([jobs[i] for i in order]), strict=True):
                done[i] = result
        return [done[i] for i in range(len(jobs))]

    def _run(self, jobs: Sequence[Job]) -> list[Done]:
        prepared = [prepare(job) for job in jobs]
        carry, fixed, anchors = (tree_map(_stack, *parts) for parts in zip(*prepared, strict=True))
        lengths = [len(job.plan.rows) for job in jobs]
        plan = on(self.data, _padded([job.plan for job in jobs]))
        ended: list[Carry] = []
        history: list[Tensors] = []
        first = 0
        while first < lengths[0]:
            width = sum(length > first for length in lengths)
            carry, finished = _cut(carry, width)
            ended = finished + ended
            fixed, anchors = (tree_map(lambda t, w=width: t[:w], tree) for tree in (fixed, anchors))
            last = min(first + CHUNK, lengths[width - 1])
            piece = Plan(*(part[:width, first:last] for part in plan))
            carry, parts = self._chunk(jobs[0].local, carry, fixed, anchors, piece)
            history += parts
            first = last
        ended = _cut(carry, 0)[1] + ended
        losses = _by_lane(history, lengths)
        return [
            conclude(job, end, made[1], loss, reached(self.nets, self.data, job, end.model))
            for job, end, made, loss in zip(jobs, ended, prepared, losses, strict=True)
        ]

    def _chunk(
        self, local: Local, carry: Carry, fixed: Fixed, anchors: dict[str, Snapshot], plan: Plan
    ) -> tuple[Carry, list[Tensors]]:
        dtype = next(iter(carry.model.weights.values())).dtype
        x, y = gather(self.data, plan, dtype)  # [lane, step, batch, ...]
        flat = x.flatten(1, 2)
        seen_by = {k: vmap(partial(look, self.nets.frozen))(a, flat) for k, a in anchors.items()}
        one_step = vmap(partial(step, self.nets.training, local))
        history: list[Tensors] = []
        for s in range(x.shape[1]):
            now = slice(s * x.shape[2], (s + 1) * x.shape[2])
            at = {k: Outputs(*(part[:, now] for part in out)) for k, out in seen_by.items()}
            carry, parts = one_step(carry, Seen(x[:, s], y[:, s], at), fixed)
            history.append(parts)
        return carry, history


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


def _cut(carry: Carry, width: int) -> tuple[Carry, list[Carry]]:
    """Keep the first lanes of a stack, and return those behind them one by one."""
    lanes = len(next(iter(carry.model.weights.values())))
    rest = [tree_map(lambda t, i=i: t[i].clone(), carry) for i in range(width, lanes)]
    return tree_map(lambda t: t[:width], carry), rest


def _by_lane(history: list[Tensors], lengths: Sequence[int]) -> list[Tensors]:
    """Turn losses by step, each [lane], into losses by lane, each [step], on the CPU."""
    lanes: list[Tensors] = []
    for part in history[0]:
        columns = [h[part].cpu() for h in history]
        for lane, length in enumerate(lengths):
            if lane == len(lanes):
                lanes.append({})
            lanes[lane][part] = torch.stack([columns[s][lane] for s in range(length)])
    return lanes
