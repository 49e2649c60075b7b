"""A cohort's way through a stack: who enters which lane when, who looks, who steps, who leaves."""

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from moonfed.core.types import Outputs, Tensors
from moonfed.data.dataset import Dataset
from moonfed.data.plan import Plan
from moonfed.engines.local import Carry
from moonfed.engines.schedule import Schedule, Stay
from moonfed.engines.stack import Held, Stack, ask


def pass_through(
    stack: Stack, order: Schedule, plans: Sequence[Plan], held: Sequence[Held], data: Dataset
) -> list[tuple[Carry, Tensors]]:
    """Take every party through its lane; return what each has come to, and its losses by part."""
    device = data.inputs.device
    laned = in_lanes(plans, order, stack.width, device)
    own = None
    index = laned.rows
    if held[0].anchors and not data.recipe.changes:  # what an anchor says of a row it says all round long
        own = [_numbered(plan.rows, len(data.labels)) for plan in plans]
        ranks = [plan._replace(rows=found[1]) for plan, found in zip(plans, own, strict=True)]
        index = in_lanes(ranks, order, stack.width, device).rows
    stack.begin(max(len(rows) for rows, _ in own) if own else None)
    reached: dict[int, Carry] = {}
    said: dict[int, dict[str, Outputs]] = {}  # of jobs that are yet to enter another lane
    comes_back = Counter(stay.job for stay in order.stays if stay.begin)
    losses: list[Tensors] = []
    starts: dict[int, list[Stay]] = {}
    for stay in order.stays:
        starts.setdefault(stay.first, []).append(stay)
    leaving = {(stay.first + stay.steps, stay.lane): stay.job for stay in order.stays}
    last = [max(at for at, lane in leaving if lane == place) for place in range(order.width)]
    for first in range(0, order.steps, order.chunk):
        for job, lane, _, begin, _ in starts.get(first, ()):
            had = held[job]._replace(carry=reached[job]) if begin else held[job]
            if own is not None and job not in said:
                said[job] = ask(stack.work, held[job].anchors, own[job][0].to(device))
            stack.load(lane, had, said.get(job))
            if begin or not comes_back[job]:
                said.pop(job, None)
        window = slice(first, first + order.chunk)
        busy = sum(end > first for end in last)
        stack.look(Plan(*(part[:, window] for part in laned)), index[:, window], busy)
        for at in range(first + 1, min(first + order.chunk, max(last)) + 1):
            stack.step()
            for lane in range(busy):
                if (job := leaving.get((at, lane))) is not None:
                    reached[job] = stack.take_out(lane)
        losses.append(stack.chunk_losses())
    found = _on_cpu(losses)
    pieces: dict[int, list[Tensors]] = {job: [] for job in range(len(plans))}
    for job, lane, first, _, steps in sorted(order.stays, key=lambda stay: stay.begin):
        mine = found[first // order.chunk : -(-(first + steps) // order.chunk)]
        pieces[job].append({k: torch.cat([chunk[k][lane] for chunk in mine])[:steps] for k in found[0]})
    return [
        (reached[job], {k: torch.cat([piece[k] for piece in own_pieces]) for k in found[0]})
        for job, own_pieces in pieces.items()
    ]


def in_lanes(plans: Sequence[Plan], order: Schedule, width: int, device: torch.device) -> Plan:
    """Lay plans one behind the other in their lanes, [lane, step, ...]; a step that nobody takes is the first one's."""
    begins = [0]
    for plan in plans:
        begins.append(begins[-1] + len(plan.rows))
    which = torch.zeros(width, order.steps, dtype=torch.int64)
    for job, lane, first, begin, steps in order.stays:
        which[lane, first : first + steps] = torch.arange(begins[job] + begin, begins[job] + begin + steps)
    where = which.flatten().to(device)

    def lay(parts: Sequence[Tensor]) -> Tensor:
        whole = torch.cat(list(parts))
        if whole.dtype == torch.int64:  # small numbers: half of the bytes travel
            sent = whole.to(torch.int32).to(device).to(torch.int64)
        else:
            sent = whole.to(device) if whole.any() else torch.zeros_like(whole, device=device)
        return sent.index_select(0, where).unflatten(0, which.shape)

    return Plan(*(lay(parts) for parts in zip(*plans, strict=True)))


def _numbered(rows: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """List the rows of a plan once each, and say for every place of the plan which of them it is.

    As torch.unique would, but without sorting, which took longer than the anchors' look at them.
    """
    there = torch.zeros(most, dtype=torch.bool)
    there[rows.flatten()] = True
    rank = there.cumsum(0) - 1
    return there.nonzero().flatten(), rank[rows]


def _on_cpu(losses: list[Tensors]) -> list[Tensors]:
    """Bring the losses of all chunks, [lane, step] each, to the CPU in one copy."""
    together = {k: torch.cat([chunk[k].flatten() for chunk in losses]).cpu() for k in losses[0]}
    split = {k: v.split([chunk[k].numel() for chunk in losses]) for k, v in together.items()}
    return [{k: split[k][i].view(v.shape) for k, v in chunk.items()} for i, chunk in enumerate(losses)]
