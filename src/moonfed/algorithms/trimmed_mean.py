"""The coordinate-wise trimmed mean (Yin et al. 2018): a few wild parties at either end of an entry do not count."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from moonfed.core.rules import Server, setting
from moonfed.core.tree import add
from moonfed.core.types import Population, Snapshot, State, Tensors, Upload


@dataclass(frozen=True)
class TrimmedMean(Server):
    """Entry by entry, the mean of what is left when the smallest and the largest values are cut.

    Each party counts once, whatever its rows. Buffers go the same way: a plain mean of them would be an open door.
    """

    linear = False
    trim: float = setting(0.2, "share of the parties cut at each end, rounded up; 0 is a plain mean", ge=0, lt=0.5)

    def combine(self, state: State, uploads: dict[int, Upload], population: Population) -> State:
        # Rounded up: a tenth of five parties is one. Of two parties there is no telling, and none is cut.
        cut = math.ceil(self.trim * len(uploads) - 1e-9)
        return trimmed(state, uploads, min(cut, (len(uploads) - 1) // 2))


def trimmed(state: State, uploads: dict[int, Upload], cut: int) -> State:
    """Move weights and buffers by the parties' mean without the cut smallest and the cut largest of each entry."""
    sent = list(uploads.values())
    weights = add(state.model.weights, _middle([upload.delta for upload in sent], cut))
    return state._replace(model=Snapshot(weights, _middle([upload.buffers for upload in sent], cut)))


def _middle(trees: list[Tensors], cut: int) -> Tensors:
    return {k: _mean(torch.stack([tree[k] for tree in trees]).sort(0).values, cut) for k in trees[0]}


def _mean(values: Tensor, cut: int) -> Tensor:
    left = values[cut : len(values) - cut]  # [party, ...]
    return left.mean(0) if left.is_floating_point() else left.double().mean(0).round().to(left.dtype)
