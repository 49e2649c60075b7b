"""A cohort's way through a stack: who enters which lane when, who looks, who steps, who leaves."""

from collections.abc import Sequence

import torch
from torch import Tensor

from moonfed.core.tree import copied
from moonfed.core.types import Outputs, Tensors
from moonfed.data.batches import BatchPlan
from moonfed.data.dataset import Dataset
from moonfed.engines.stacked.lanes import LaneState, Stack, ask
from moonfed.engines.stacked.schedule import Schedule, Stay
from moonfed.engines.step import Carry


def run_schedule(
    stack: Stack, order: Schedule, plans: Sequence[BatchPlan], held: Sequence[LaneState], data: Dataset
) -> list[tuple[Carry, Tensors]]:
    """Take every party through its lane; return what each has come to, and its losses by part."""
    laned = in_lanes(plans, order, stack.width, data.inputs.device)
    still = bool(held[0].anchors) and not data.recipe.changes  # what an anchor says of a row it says all round long
    answers = AnchorCache(stack, order, laned.rows, held, len(data.labels)) if still else None
    index = laned.rows if answers is None else answers.index
    stack.begin(None if answers is None else max(map(len, answers.rows)))
    reached: dict[int, Carry] = {}
    losses: list[Tensors] = []
    starts: dict[int, list[Stay]] = {}
    for stay in order.stays:
        starts.setdefault(stay.first, []).append(stay)
    leaving = {(stay.first + stay.steps, stay.lane): stay.job for stay in order.stays}
    last = [max(at for at, lane in leaving if lane == place) for place in range(order.width)]
    for first in range(0, order.steps, order.chunk):
        entering = starts.get(first, ())
        said = answers.of(entering) if answers else {}
        for stay in entering:
            had = held[stay.job]
            had = had._replace(carry=reached[stay.job]) if stay.begin else had
            stack.load(stay.lane, had, said.get(stay.job))
        window = slice(first, first + order.chunk)
        busy = sum(end > first for end in last)
        stack.look(BatchPlan(*(part[:, window] for part in laned)), index[:, window], busy)
        for at in range(first + 1, min(first + order.chunk, max(last)) + 1):
            stack.step()
            for lane in range(busy):
                if (job := leaving.get((at, lane))) is not None:
                    reached[job] = stack.take_out(lane)
        losses.append(stack.chunk_losses())
    return [(reached[job], parts) for job, parts in enumerate(_by_job(losses, order, len(plans)))]


class AnchorCache:
    """What anchors say of their parties' rows where rows never change: asked as a party first enters a lane."""

    def __init__(self, stack: Stack, order: Schedule, laned: Tensor, held: Sequence[LaneState], rows: int) -> None:
        self.stack, self.held = stack, held
        self.comes_back = {stay.job for stay in order.stays if stay.begin}
        self.said: dict[int, dict[str, Outputs]] = {}  # of jobs that are yet to enter another lane
        whose = torch.zeros(laned.shape[:2], dtype=torch.int64)
        for stay in order.stays:
            whose[stay.lane, stay.first : stay.first + stay.steps] = stay.job
        place = whose.to(laned.device)[:, :, None]
        key = place * rows + laned
        there = torch.zeros(len(held) * rows, dtype=torch.bool, device=laned.device)
        there[key] = True
        found = there.nonzero()[:, 0]  # every row of every job once, in order; torch.unique would sort all the places
        sizes = torch.bincount(found // rows, minlength=len(held))
        self.rows = (found % rows).split(sizes.tolist())  # by job
        # [lane, step, batch]: the number of a row within its party
        self.index = torch.searchsorted(found, key) - (sizes.cumsum(0) - sizes)[place]

    def of(self, stays: Sequence[Stay]) -> dict[int, dict[str, Outputs]]:
        """Return what the anchors of those who enter say, by job; whoever is new is asked together."""
        new = [stay.job for stay in stays if stay.job not in self.said]
        if new:
            asked = ask(self.stack.work, [self.held[job].anchors for job in new], [self.rows[job] for job in new])
            for job, said in zip(new, asked, strict=True):  # one that stays must not keep all that were asked with it
                self.said[job] = copied(said) if job in self.comes_back else said
        done = {stay.job for stay in stays if stay.begin or stay.job not in self.comes_back}
        return {stay.job: self.said.pop(stay.job) if stay.job in done else self.said[stay.job] for stay in stays}


def in_lanes(plans: Sequence[BatchPlan], order: Schedule, width: int, device: torch.device) -> BatchPlan:
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

    return BatchPlan(*(lay(parts) for parts in zip(*plans, strict=True)))


def _by_job(losses: list[Tensors], order: Schedule, jobs: int) -> list[Tensors]:
    """Put the losses of lanes, chunk by chunk, together by job."""
    found = _on_cpu(losses)
    pieces: list[list[Tensors]] = [[] for _ in range(jobs)]
    for job, lane, first, _, steps in sorted(order.stays, key=lambda stay: stay.begin):
        mine = found[first // order.chunk : -(-(first + steps) // order.chunk)]
        pieces[job].append({k: torch.cat([chunk[k][lane] for chunk in mine])[:steps] for k in found[0]})
    return [{k: torch.cat([piece[k] for piece in own]) for k in found[0]} for own in pieces]


def _on_cpu(losses: list[Tensors]) -> list[Tensors]:
    """Bring the losses of all chunks, [lane, step] each, to the CPU in one copy."""
    together = {k: torch.cat([chunk[k].flatten() for chunk in losses]).cpu() for k in losses[0]}
    split = {k: v.split([chunk[k].numel() for chunk in losses]) for k, v in together.items()}
    return [{k: split[k][i].view(v.shape) for k, v in chunk.items()} for i, chunk in enumerate(losses)]
