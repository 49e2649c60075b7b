"""How good a model is on the test rows."""

from typing import NamedTuple

import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from moonfed.core.types import Snapshot
from moonfed.data.augment import normalise
from moonfed.data.dataset import Dataset

BATCH = 1000


class Score(NamedTuple):
    """Top-1 accuracy and mean cross-entropy."""

    accuracy: float
    loss: float


@torch.no_grad()
def evaluate(net: nn.Module, data: Dataset, model: Snapshot) -> Score:
    """Score a model on the whole test set, in eval mode."""
    dtype = next(iter(model.weights.values())).dtype
    right, loss = 0, 0.0
    for pixels, y in zip(data.test_images.split(BATCH), data.test_labels.split(BATCH), strict=True):
        out = functional_call(net, (model.weights, model.buffers), (normalise(data, pixels, dtype),))
        right += int((out.logits.argmax(1) == y).sum())
        loss += float(cross_entropy(out.logits, y, reduction="sum"))
    return Score(right / len(data.test_labels), loss / len(data.test_labels))
