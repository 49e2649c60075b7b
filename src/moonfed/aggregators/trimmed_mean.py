"""The coordinate-wise trimmed mean (Yin et al. 2018): extreme values of a few parties do not count."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from moonfed.core.algorithm import Preset
from moonfed.core.averaging import as_type
from moonfed.core.rules import Aggregator, setting
from moonfed.core.types import Population, ReceivedUpload, State, Tensors, Update


@dataclass(frozen=True)
class TrimmedMeanAggregator(Aggregator):
    """Per entry, the mean of what remains when the smallest and the largest values are removed.

    Each party counts once, whatever its rows. Buffers are treated alike: a plain mean of them could be poisoned.
    """

    linear = False
    trim: float = setting(0.2, "fraction of the parties removed at each end, rounded up; 0: plain mean", ge=0, lt=0.5)

    def reduce(self, state: State, received: dict[int, ReceivedUpload], population: Population) -> Update:
        # Rounded up: a tenth of five parties is one. Of two parties neither is removed.
        cut = math.ceil(self.trim * len(received) - 1e-9)
        return trimmed(received, min(cut, (len(received) - 1) // 2))


def trimmed(received: dict[int, ReceivedUpload], cut: int) -> Update:
    """Average weights and buffers without the cut smallest and the cut largest values of each entry."""
    uploads = [each.upload for each in received.values()]
    delta = _trimmed_mean([upload.delta for upload in uploads], cut)
    return Update(delta, _trimmed_mean([upload.buffers for upload in uploads], cut), {}, {})


def _trimmed_mean(trees: list[Tensors], cut: int) -> Tensors:
    return {k: _mean(torch.stack([tree[k] for tree in trees]).sort(0).values, cut) for k in trees[0]}


def _mean(values: Tensor, cut: int) -> Tensor:
    rest = values[cut : len(values) - cut]  # [party, ...]
    return rest.mean(0) if rest.is_floating_point() else as_type(rest.double().mean(0), rest.dtype)


PRESET = Preset("trimmed-mean", aggregator=TrimmedMeanAggregator)
