"""Executes a schedule on a stack: loads parties into lanes, steps, and reads them back."""

from collections.abc import Sequence

import torch
from torch import Tensor

from moonfed.core.types import Tensors
from moonfed.data.batches import BatchPlan
from moonfed.data.dataset import Dataset
from moonfed.engines.stacked.anchors import AnchorCache
from moonfed.engines.stacked.lanes import LaneState, Stack
from moonfed.engines.stacked.schedule import Assignment, Schedule
from moonfed.engines.step import Carry


def run_schedule(
    stack: Stack, schedule: Schedule, plans: Sequence[BatchPlan], states: Sequence[LaneState], data: Dataset
) -> list[tuple[Carry, Tensors]]:
    """Run every job in its lanes; return each job's last model and velocity, and its losses by part."""
    plan = arrange_plans(plans, schedule, stack.width, data.inputs.device)
    anchors = [state.anchors for state in states]
    constant = bool(anchors[0]) and not data.recipe.changes  # an anchor's output for a row is the same all round
    cache = AnchorCache(stack.spec, schedule, plan.rows, anchors, len(data.labels)) if constant else None
    index = plan.rows if cache is None else cache.index
    stack.start_round(None if cache is None else cache.max_rows)
    starts: dict[int, list[Assignment]] = {}
    for a in schedule.assignments:
        starts.setdefault(a.lane_step, []).append(a)
    leaving = {(a.lane_step + a.steps, a.lane): a.job for a in schedule.assignments}
    lane_ends = [max(at for at, lane in leaving if lane == own) for own in range(schedule.width)]
    reached: dict[int, Carry] = {}
    losses: list[Tensors] = []
    for first in range(0, schedule.steps, schedule.chunk):
        entering = starts.get(first, [])
        outputs = cache.outputs_of(entering) if cache else {}
        for a in entering:
            state = states[a.job]._replace(carry=reached[a.job]) if a.job_step else states[a.job]
            stack.load_lane(a.lane, state, outputs.get(a.job))
        steps = slice(first, first + schedule.chunk)
        busy = sum(end > first for end in lane_ends)
        stack.gather_chunk(BatchPlan(*(part[:, steps] for part in plan)), index[:, steps], busy)
        for at in range(first + 1, min(first + schedule.chunk, max(lane_ends)) + 1):
            stack.step()
            for lane in range(busy):
                if (job := leaving.get((at, lane))) is not None:
                    reached[job] = stack.read_lane(lane)
        losses.append(stack.chunk_losses())
    return [(reached[job], parts) for job, parts in enumerate(_losses_by_job(losses, schedule, len(plans)))]


def arrange_plans(plans: Sequence[BatchPlan], schedule: Schedule, width: int, device: torch.device) -> BatchPlan:
    """Arrange the plans of the jobs by lane, [lane, step, ...]; unused steps repeat the first job's first step."""
    begins = [0]
    for plan in plans:
        begins.append(begins[-1] + len(plan.rows))
    source = torch.zeros(width, schedule.steps, dtype=torch.int64)
    for job, lane, lane_step, job_step, steps in schedule.assignments:
        begin = begins[job] + job_step
        source[lane, lane_step : lane_step + steps] = torch.arange(begin, begin + steps)
    flat_source = source.flatten().to(device)

    def arrange(parts: Sequence[Tensor]) -> Tensor:
        joined = torch.cat(list(parts))
        if joined.dtype == torch.int64:  # values are small: half of the bytes are copied
            copied = joined.to(torch.int32).to(device).to(torch.int64)
        else:
            copied = joined.to(device) if joined.any() else torch.zeros_like(joined, device=device)
        return torch.unflatten(copied.index_select(0, flat_source), 0, source.shape)

    return BatchPlan(*(arrange(parts) for parts in zip(*plans, strict=True)))


def _losses_by_job(losses: list[Tensors], schedule: Schedule, jobs: int) -> list[Tensors]:
    """Join the losses of the lanes' chunks by job."""
    chunks = _copy_to_cpu(losses)
    pieces: list[list[Tensors]] = [[] for _ in range(jobs)]
    for job, lane, lane_step, _, steps in sorted(schedule.assignments, key=lambda a: a.job_step):
        own = chunks[lane_step // schedule.chunk : -(-(lane_step + steps) // schedule.chunk)]
        pieces[job].append({k: torch.cat([chunk[k][lane] for chunk in own])[:steps] for k in chunks[0]})
    return [{k: torch.cat([piece[k] for piece in own]) for k in chunks[0]} for own in pieces]


def _copy_to_cpu(losses: list[Tensors]) -> list[Tensors]:
    """Copy the losses of all chunks, [lane, step] each, to the CPU in one transfer."""
    joined = {k: torch.cat([chunk[k].flatten() for chunk in losses]).cpu() for k in losses[0]}
    split = {k: torch.split(v, [chunk[k].numel() for chunk in losses]) for k, v in joined.items()}
    return [{k: split[k][i].view(v.shape) for k, v in chunk.items()} for i, chunk in enumerate(losses)]
