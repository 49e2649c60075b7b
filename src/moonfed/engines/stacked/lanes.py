"""A stack: lanes in their places, what they hold, how they look at a chunk of steps and take one."""

from collections.abc import Hashable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from moonfed.core.rules import LocalRule
from moonfed.core.tree import copied, copy_into, tree_map
from moonfed.core.types import Outputs, Snapshot, Tensors
from moonfed.data.augment import gather, normalise
from moonfed.data.batches import BatchPlan
from moonfed.data.dataset import Dataset
from moonfed.engines.base import Nets
from moonfed.engines.dropout import begin_step
from moonfed.engines.stacked.graph_cache import Traces
from moonfed.engines.stacked.layout import SideBySide
from moonfed.engines.step import Batch, Carry, Each, Fixed, forward_anchor, step

CACHE = 6 * 2**20  # bytes of the widest layer of all lanes: with more, a CPU waits for its memory
PIECE = 512  # rows of a party that make a lane where anchors are asked about all of them
BULK = 2**30  # numbers in the widest layer of a look through the anchors: cuDNN's BatchNorm refuses 2**31 and more


class StackSpec(NamedTuple):
    """What a stack works on and how: all that its lanes share."""

    nets: Nets
    data: Dataset
    local: LocalRule
    lanes: SideBySide | None  # None: one lane, without vmap
    widest: int  # numbers in the net's widest layer, for one row
    clip: bool = False  # whether gradients are clipped
    key: Hashable = None  # what decides a step besides numbers and shapes; None: not to be written down
    traces: Traces | None = None

    @property
    def each(self) -> Each:
        """Make a function of one lane one of the stack's lanes."""
        return _lone if self.lanes is None else self.lanes.each


class LaneState(NamedTuple):
    """What a lane holds while a party is in it, or all lanes do."""

    carry: Carry
    fixed: Fixed
    anchors: dict[str, Snapshot]


class Stack:
    """The lanes of a stack at work, an operation at a time."""

    def __init__(self, work: StackSpec, width: int, chunk: int, like: LaneState) -> None:
        self.work, self.width, self.chunk = work, width, chunk
        self.held: LaneState = tree_map(lambda t: t.new_zeros(width, *t.shape), like)
        self.tables: Tables | None = None
        self.seen: Batch | None = None
        self.losses: list[Tensors] = []

    def begin(self, rows: int | None) -> None:
        """Make ready for a round; rows is the most that a party has, if what anchors say of them is to be kept."""
        self.tables = None if rows is None else Tables(self.width, rows)

    def load(self, place: int, held: LaneState, said: dict[str, Outputs] | None = None) -> None:
        """Let a party into a lane, with what its anchors say of its rows if that is kept."""
        copy_into(tree_map(lambda t: t[place], self.held), held)
        if self.tables is not None and said is not None:
            self.tables.fill(place, said)

    def take_out(self, place: int) -> Carry:
        """Return what the party in a lane has come to."""
        return copied(tree_map(lambda t: t[place], self.held.carry))

    def look(self, window: BatchPlan, index: Tensor, busy: int) -> None:
        """Gather and augment a chunk, and see it through the anchors; lanes behind the busy ones are left alone."""
        if busy < self.width:
            self.held, self.width = tree_map(lambda t: t[:busy], self.held), busy
        self.seen = see(self.work, self.held.anchors, BatchPlan(*(part[:busy] for part in window)), self.tables is None)
        if self.tables is not None:
            self.seen = self.seen._replace(anchors=self.tables.say(index[:busy]))
        self.losses = []

    def step(self) -> None:
        """Take the next step of the chunk."""
        assert self.seen is not None
        now = tree_map(lambda t: t[:, len(self.losses)], self.seen)
        work, held = self.work, self.held
        if work.lanes is None:
            begin_step(work.nets.training, now.key)

        def act(carry: Carry, now: Batch, fixed: Fixed) -> tuple[Carry, Tensors]:
            return step(work.nets.training, work.local, carry, now, fixed, work.clip, work.each)

        trees = (held.carry, now, held.fixed)
        carry, parts = act(*trees) if work.traces is None else work.traces.run(work.key, act, trees)
        self.held = held._replace(carry=carry)
        self.losses.append(parts)

    def chunk_losses(self) -> Tensors:
        """Return the losses of the steps taken since the last look: [lane, step] by part."""
        return {k: torch.stack([parts[k] for parts in self.losses], 1) for k in self.losses[0]}


class Tables:
    """What the anchors say of every row of the parties, where rows never change: looked up, not computed again."""

    def __init__(self, width: int, rows: int) -> None:
        self.width, self.rows = width, rows
        self.said: dict[str, Outputs] = {}

    def fill(self, place: int, said: dict[str, Outputs]) -> None:
        """Keep what a party's anchors say of its rows."""
        if not self.said:
            self.said = tree_map(lambda t: t.new_zeros(self.width, self.rows, *t.shape[1:]), said)
        copy_into(tree_map(lambda table, rows: table[place, : len(rows)], self.said, said), said)

    def say(self, index: Tensor) -> dict[str, Outputs]:
        """Look the rows of a chunk up by their number within the party: [lane, step, batch]."""
        lane = torch.arange(len(index), device=index.device)[:, None, None]
        return tree_map(lambda table: table[lane, index], self.said)


def ask(work: StackSpec, anchors: Sequence[dict[str, Snapshot]], rows: Sequence[Tensor]) -> list[dict[str, Outputs]]:
    """See parties' rows as they are through their anchors: on a GPU in pieces, many side by side."""
    widest = max(work.widest, work.data.inputs[0].numel())
    weights = sum(p.numel() for p in work.nets.inference.parameters())
    if rows[0].is_cuda and work.lanes is not None:
        sizes = side_by_side(max(map(len, rows)), BULK // 8, widest, weights)
        return ask_in_pieces(work, anchors, rows, *sizes)
    most = max(16, (BULK // 8 if rows[0].is_cuda else CACHE // 4) // widest)  # rows at once
    pairs = zip(anchors, rows, strict=True)
    return [said for had, own in pairs for said in ask_in_pieces(work, [had], [own], even(len(own), most), 1)]


def even(rows: int, most: int) -> int:
    """Choose the length of a party's pieces: as few as may be, and all of nearly the same length."""
    return -(-rows // -(-rows // most))


def side_by_side(rows: int, room: int, widest: int, weights: int) -> tuple[int, int]:
    """Choose the length of pieces and how many are lanes at once, if neither their layers nor weights may fill more."""
    most = max(16, room // widest)
    length = min(PIECE, most, rows)
    return length, max(1, min(most // length, room // max(1, weights)))


@torch.no_grad()
def ask_in_pieces(
    work: StackSpec, anchors: Sequence[dict[str, Snapshot]], rows: Sequence[Tensor], length: int, at_once: int
) -> list[dict[str, Outputs]]:
    """See parties' rows through their anchors in pieces of one length, each a lane of its own."""
    dtype = next(iter(work.nets.training.parameters())).dtype
    looks = work.each(partial(forward_anchor, work.nets.inference))
    pieces = [(party, some) for party, own in enumerate(rows) for some in own.split(length)]
    looked: list[dict[str, Outputs]] = []
    for first in range(0, len(pieces), at_once):
        parties, some = zip(*pieces[first : first + at_once], strict=True)
        filled = torch.stack([F.pad(own, (0, length - len(own))) for own in some])  # with row 0, which is cut off again
        x = normalise(work.data, work.data.inputs[filled], dtype)
        through = tree_map(lambda *t: torch.stack(t), *(anchors[party] for party in parties))
        seen = {k: looks(a, x) for k, a in through.items()}
        looked.append(tree_map(lambda t: t.flatten(0, 1), seen))
    flat = tree_map(lambda *parts: torch.cat(parts), *looked)
    sizes = [n for own in rows for n in (len(own), -len(own) % length)]
    return [_part(flat, end - len(own), end) for own, end in zip(rows, list(accumulate(sizes))[::2], strict=True)]


def _part(tree: Any, begin: int, end: int) -> Any:
    return tree_map(lambda t: t[begin:end], tree)


@torch.no_grad()
def see(work: StackSpec, anchors: dict[str, Snapshot], plan: BatchPlan, through_anchors: bool) -> Batch:
    """Gather and augment a chunk, and look at it through the anchors in bulk: [lane, step, batch, ...]."""
    dtype = next(iter(work.nets.training.parameters())).dtype
    x, y = gather(work.data, plan, dtype, work.lanes.lay if work.lanes else None)
    if not through_anchors:
        return Batch(x, y, {}, plan.keys)
    at_once = max(1, (BULK if x.is_cuda else CACHE // 4) // (x.shape[0] * x.shape[2] * work.widest))
    looks = work.each(partial(forward_anchor, work.nets.inference))

    def through(anchor: Snapshot, piece: Tensor) -> Outputs:
        trees = (anchor, piece.flatten(1, 2))
        return looks(*trees) if work.traces is None else work.traces.run(("look", work.key), looks, trees)

    seen_by = {k: [through(a, piece) for piece in x.split(at_once, 1)] for k, a in anchors.items()}
    joined = {k: (torch.cat(parts, 1) for parts in zip(*pieces, strict=True)) for k, pieces in seen_by.items()}
    said = {k: Outputs(*(part.unflatten(1, y.shape[1:]) for part in out)) for k, out in joined.items()}
    return Batch(x, y, said, plan.keys)


def _lone(of_one: Any) -> Any:
    """Make a function of one lane one of a stack of one lane."""

    def run(*trees: Any) -> Any:
        return tree_map(lambda t: t[None], of_one(*tree_map(lambda t: t[0], trees)))

    return run
