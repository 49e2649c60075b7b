"""Runs rows through the anchors in bulk, and keeps the outputs where rows never change."""

from collections.abc import Sequence
from functools import partial
from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from moonfed.core.tree import tree_map
from moonfed.core.types import Outputs, Snapshot
from moonfed.data.augment import normalise
from moonfed.engines.stacked.schedule import Assignment, Schedule
from moonfed.engines.stacked.stack_spec import CPU_CACHE_BYTES, StackSpec

Anchors = dict[str, Snapshot]
AnchorOutputs = dict[str, Outputs]

MAX_PIECE_ROWS = 512  # rows of a party that form one lane of a forward pass over all of its rows
PIECE_ROWS_STEP = 64  # their number is a multiple of it, since kernels are compiled for one
MAX_ANCHOR_VALUES = 2**30  # values in the widest layer of a forward pass: cuDNN's BatchNorm refuses 2**31 and more


def forward_chunk(spec: StackSpec, anchors: Anchors, x: Tensor) -> AnchorOutputs:
    """Run a chunk of all lanes, [lane, step, batch, ...], through each lane's anchors."""
    limit = MAX_ANCHOR_VALUES if x.is_cuda else CPU_CACHE_BYTES // 4
    steps_at_once = max(1, limit // (x.shape[0] * x.shape[2] * spec.nets.widest))
    forward = spec.vectorize(partial(functional_call, spec.nets.inference))

    def run(anchor: Snapshot, piece: Tensor) -> Outputs:
        trees = (anchor, piece.flatten(1, 2))
        return forward(*trees) if spec.graphs is None else spec.graphs.run(("anchors", spec.key), forward, trees)

    pieces = {k: [run(anchor, piece) for piece in torch.split(x, steps_at_once, 1)] for k, anchor in anchors.items()}
    joined = {k: (torch.cat(parts, 1) for parts in zip(*outs, strict=True)) for k, outs in pieces.items()}
    return {k: Outputs(*(torch.unflatten(part, 1, x.shape[1:3]) for part in out)) for k, out in joined.items()}


def forward_anchors(spec: StackSpec, anchors: Sequence[Anchors], rows: Sequence[Tensor]) -> list[AnchorOutputs]:
    """Run parties' rows, unaugmented, through their anchors: on a GPU in pieces, many at once."""
    widest = max(spec.nets.widest, spec.data.inputs[0].numel())
    weights = sum(p.numel() for p in spec.nets.inference.parameters())
    if rows[0].is_cuda and spec.ops is not None:
        length, lanes = piece_sizes(max(map(len, rows)), MAX_ANCHOR_VALUES // 8, widest, weights)
        return forward_anchors_in_pieces(spec, anchors, rows, length, lanes)
    limit = max(16, (MAX_ANCHOR_VALUES // 8 if rows[0].is_cuda else CPU_CACHE_BYTES // 4) // widest)  # rows at once
    return [
        outputs
        for of_party, own in zip(anchors, rows, strict=True)
        for outputs in forward_anchors_in_pieces(spec, [of_party], [own], even_length(len(own), limit), 1)
    ]


def even_length(rows: int, limit: int) -> int:
    """Choose the length of a party's pieces: as few pieces as possible, all of nearly the same length."""
    return -(-rows // -(-rows // limit))


def piece_sizes(rows: int, limit: int, widest: int, weights: int) -> tuple[int, int]:
    """Choose the rows per piece and the pieces at once, so that neither layers nor weights exceed a limit."""
    max_rows = max(16, limit // widest)
    length = min(MAX_PIECE_ROWS, max_rows, -(-rows // PIECE_ROWS_STEP) * PIECE_ROWS_STEP)
    return length, max(1, min(max_rows // length, limit // max(1, weights)))


@torch.no_grad()
def forward_anchors_in_pieces(
    spec: StackSpec, anchors: Sequence[Anchors], rows: Sequence[Tensor], length: int, lanes: int
) -> list[AnchorOutputs]:
    """Run parties' rows through their anchors in pieces of one length, each in a lane of its own."""
    forward = spec.vectorize(partial(functional_call, spec.nets.inference))
    pieces = [(party, piece) for party, own in enumerate(rows) for piece in torch.split(own, length)]
    outputs: list[AnchorOutputs] = []
    for first in range(0, len(pieces), lanes):
        some = pieces[first : first + lanes]
        padded = torch.stack([F.pad(own, (0, length - len(own))) for _, own in some])  # with row 0, cut off below
        x = normalise(spec.data, spec.data.inputs[padded], spec.dtype)
        stacked = tree_map(lambda *t: torch.stack(t), *[anchors[party] for party, _ in some])
        in_lanes: AnchorOutputs = {k: forward(anchor, x) for k, anchor in stacked.items()}
        outputs.append(tree_map(lambda t: t.flatten(0, 1), in_lanes))
    flat = tree_map(lambda *parts: torch.cat(parts), *outputs)
    sizes = [n for own in rows for n in (len(own), -len(own) % length)]
    parties = [slice(end - len(own), end) for own, end in zip(rows, list(accumulate(sizes))[::2], strict=True)]
    return [{k: Outputs(*(part[own] for part in out)) for k, out in flat.items()} for own in parties]


class AnchorCache:
    """The anchors' outputs by job, where rows never change: computed when a job first enters a lane."""

    def __init__(
        self, spec: StackSpec, schedule: Schedule, rows: Tensor, anchors: Sequence[Anchors], row_count: int
    ) -> None:
        self.spec, self.anchors = spec, anchors
        self.resumed_jobs = {a.job for a in schedule.assignments if a.job_step}
        self.outputs: dict[int, AnchorOutputs] = {}  # of jobs that will enter another lane
        job_at = torch.zeros(rows.shape[:2], dtype=torch.int64)
        for a in schedule.assignments:
            job_at[a.lane, a.lane_step : a.lane_step + a.steps] = a.job
        job = job_at.to(rows.device)[:, :, None]
        key = job * row_count + rows
        used = torch.zeros(len(anchors) * row_count, dtype=torch.bool, device=rows.device)
        used[key] = True
        found = used.nonzero()[:, 0]  # every row of every job once, sorted; faster than torch.unique
        sizes = torch.bincount(found // row_count, minlength=len(anchors))
        counts: list[int] = sizes.tolist()  # pyright: ignore
        self.rows = torch.split(found % row_count, counts)  # by job
        # [lane, step, batch]: the number of a row within its party
        self.index = torch.searchsorted(found, key) - (sizes.cumsum(0) - sizes)[job]

    @property
    def max_rows(self) -> int:
        """The most rows that a job has."""
        return max(map(len, self.rows))

    def outputs_of(self, entering: Sequence[Assignment]) -> dict[int, AnchorOutputs]:
        """Return the outputs of the jobs that enter a lane, by job; those of new jobs are computed together."""
        new = [a.job for a in entering if a.job not in self.outputs]
        if new:
            computed = forward_anchors(self.spec, [self.anchors[job] for job in new], [self.rows[job] for job in new])
            for job, outputs in zip(new, computed, strict=True):
                # A copy, because a view would keep the outputs of all these jobs in memory.
                self.outputs[job] = tree_map(torch.clone, outputs) if job in self.resumed_jobs else outputs
        last = {a.job for a in entering if a.job_step or a.job not in self.resumed_jobs}
        return {a.job: self.outputs.pop(a.job) if a.job in last else self.outputs[a.job] for a in entering}
