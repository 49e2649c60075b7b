"""Batch plans: every row, crop, flip and rotation of a party's round, drawn in advance."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from moonfed.core.seeds import generator
from moonfed.data.dataset import Augmentation
from moonfed.data.partition import Rows


class BatchPlan(NamedTuple):
    """The rows and the augmentation of every step of a party's round."""

    rows: Tensor  # int64 [step, batch]
    crops: Tensor  # int64 [step, batch, 2]: top and left of the crop in the padded image
    flips: Tensor  # bool [step, batch]
    angles: Tensor  # float64 [step, batch]: degrees, counter-clockwise
    keys: Tensor  # int64 [step], below 2**31: seeds of dropout
    numbers: Tensor  # int64 [step]: of each step within the round, from 0


def draw_plan(
    trial: int,
    round: int,
    party: int,
    rows: Rows,
    epochs: int,
    batch: int,
    augmentation: Augmentation,
    work: float = 1.0,
) -> BatchPlan:
    """Draw a plan: a new order of the rows in each epoch, an incomplete last batch dropped, as in the authors' code.

    A party with fewer rows than a batch takes one step per epoch, on all of them. work is the share of its steps that
    the party completes before the round ends.
    """
    rng, batch = generator(trial, "plan", round, party), min(batch, len(rows))
    shape = (len(rows) // batch, batch)
    by_epoch = [  # so that the first five of ten epochs equal a plan of five
        (
            rng.permutation(rows)[: shape[0] * batch].reshape(shape),
            rng.integers(0, 2 * augmentation.pad + 1, size=(*shape, 2)),
            rng.random(shape) < (0.5 if augmentation.flip else 0.0),
            rng.uniform(-augmentation.rotate, augmentation.rotate, size=shape)
            if augmentation.rotate
            else np.zeros(shape),
        )
        for _ in range(epochs)
    ]
    steps = max(1, int(work * epochs * shape[0] + 1e-9))
    keys = generator(trial, "dropout", round, party).integers(0, 2**31, size=steps)
    parts = (np.concatenate(part)[:steps] for part in zip(*by_epoch, strict=True))
    return BatchPlan(*map(torch.from_numpy, (*parts, keys, np.arange(steps))))


def probe_plan(rows: Rows, batch: int, augmentation: Augmentation) -> BatchPlan:
    """Plan one pass over the rows in order, full batches without augmentation: used to measure a party's gradient."""
    batch = min(batch, len(rows))
    order = torch.from_numpy(np.array(rows[: len(rows) // batch * batch])).reshape(-1, batch)
    crops = torch.full((*order.shape, 2), augmentation.pad)
    flips, angles = torch.zeros_like(order, dtype=torch.bool), torch.zeros_like(order, dtype=torch.float64)
    return BatchPlan(order, crops, flips, angles, *[torch.arange(len(order))] * 2)
