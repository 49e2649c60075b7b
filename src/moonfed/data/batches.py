"""The plan of a party's round: every row, crop, flip and rotation of every step, drawn ahead."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from moonfed.core.seeds import generator
from moonfed.data.dataset import Recipe
from moonfed.data.partition import Rows


class BatchPlan(NamedTuple):
    """What a party sees, step by step."""

    rows: Tensor  # int64 [step, batch]
    crops: Tensor  # int64 [step, batch, 2]: top and left of the crop in the padded picture
    flips: Tensor  # bool [step, batch]
    angles: Tensor  # float64 [step, batch]: degrees, counter-clockwise
    keys: Tensor  # int64 [step], below 2**31: what dropout draws from


def draw_plan(
    trial: int, round: int, party: int, rows: Rows, epochs: int, batch: int, recipe: Recipe, work: float = 1.0
) -> BatchPlan:
    """Draw a plan: each epoch a new order of the rows, an incomplete last batch dropped, as published.

    work is the share of its steps that the party gets done before the round ends.
    """
    rng = generator(trial, "plan", round, party)
    shape = (len(rows) // batch, batch)
    drawn = [  # epoch by epoch, so that half of ten epochs is five
        (
            rng.permutation(rows)[: shape[0] * batch].reshape(shape),
            rng.integers(0, 2 * recipe.pad + 1, size=(*shape, 2)),
            rng.random(shape) < (0.5 if recipe.flip else 0.0),
            rng.uniform(-recipe.rotate, recipe.rotate, size=shape) if recipe.rotate else np.zeros(shape),
        )
        for _ in range(epochs)
    ]
    done = max(1, int(work * epochs * shape[0] + 1e-9))
    keys = generator(trial, "dropout", round, party).integers(0, 2**31, size=done)
    parts = (np.concatenate(part)[:done] for part in zip(*drawn, strict=True))
    return BatchPlan(*map(torch.from_numpy, (*parts, keys)))


def probe_plan(rows: Rows, batch: int, recipe: Recipe) -> BatchPlan:
    """Plan one unaugmented pass over the rows in order, full batches only: what a party's gradient is measured on."""
    order = torch.from_numpy(np.array(rows[: len(rows) // batch * batch])).reshape(-1, batch)
    crops = torch.full((*order.shape, 2), recipe.pad)
    still = torch.zeros_like(order, dtype=torch.bool), torch.zeros_like(order, dtype=torch.float64)
    return BatchPlan(order, crops, *still, torch.arange(len(order)))
