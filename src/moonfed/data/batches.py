"""Batch plans: every row, crop, flip and rotation of a party's round, drawn in advance."""

from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from moonfed.core.seeds import generators
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


class PlanDraw(NamedTuple):
    """What the plan of a party's round is drawn from, beside what all parties have in common."""

    party: int
    rows: Rows
    work: float = 1.0  # the share of its steps that the party completes before the round ends


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
    """Draw the plan of one party; each party's plan depends on its own draws alone."""
    (plan,) = draw_plans(trial, round, [PlanDraw(party, rows, work)], epochs, batch, augmentation)
    return plan


def draw_plans(
    trial: int, round: int, parties: Iterable[PlanDraw], epochs: int, batch: int, augmentation: Augmentation
) -> list[BatchPlan]:
    """Draw plans: a new order of the rows in each epoch, an incomplete last batch dropped, as in the authors' code.

    A party with fewer rows than a batch takes one step per epoch, on all of them. What is not drawn is the same tensor
    in all plans with as many steps.
    """
    plain = cache(_plain_plan)
    parties = list(parties)
    names = [(purpose, round, each.party) for each in parties for purpose in ("plan", "dropout")]
    streams = iter(generators(trial, names))
    plans: list[BatchPlan] = []
    for _, rows, work in parties:
        own_batch = min(batch, len(rows))
        per_epoch = len(rows) // own_batch
        steps = max(1, int(work * epochs * per_epoch + 1e-9))
        rng, key_rng = next(streams), next(streams)
        # Epoch by epoch, so that the first five of ten epochs equal a plan of five.
        by_epoch = [_draw_epoch(rng, rows, (per_epoch, own_batch), augmentation) for _ in range(epochs)]
        keys = key_rng.integers(0, 2**31, size=steps)
        joined = (
            {k: np.concatenate([drawn[k] for drawn in by_epoch]) for k in by_epoch[0]} if epochs > 1 else by_epoch[0]
        )
        parts = {k: torch.from_numpy(part[:steps]) for k, part in joined.items()}
        plans.append(plain(steps, own_batch)._replace(**parts, keys=torch.from_numpy(keys)))
    return plans


def _draw_epoch(
    rng: np.random.Generator, rows: Rows, shape: tuple[int, int], augmentation: Augmentation
) -> dict[str, NDArray[Any]]:
    """Draw the parts of an epoch's plan that are random, by name."""
    drawn: dict[str, NDArray[Any]] = {"rows": rng.permutation(rows)[: shape[0] * shape[1]].reshape(shape)}
    if augmentation.pad:
        drawn["crops"] = rng.integers(0, 2 * augmentation.pad + 1, size=(*shape, 2))
    chances = rng.random(shape)  # without flips too: what is drawn next does not depend on them
    if augmentation.flip:
        drawn["flips"] = chances < 0.5
    if augmentation.rotate:
        drawn["angles"] = rng.uniform(-augmentation.rotate, augmentation.rotate, size=shape)
    return drawn


def _plain_plan(steps: int, batch: int) -> BatchPlan:
    """Make a plan of steps without augmentation."""
    rows = torch.zeros(steps, batch, dtype=torch.int64)
    crops, flips, angles = torch.zeros(steps, batch, 2, dtype=torch.int64), rows.bool(), rows.double()
    return BatchPlan(rows, crops, flips, angles, rows[:, 0], torch.arange(steps))


def probe_plan(rows: Rows, batch: int, augmentation: Augmentation) -> BatchPlan:
    """Plan one pass over the rows in order, full batches without augmentation: used to measure a party's gradient."""
    batch = min(batch, len(rows))
    order = torch.from_numpy(np.array(rows[: len(rows) // batch * batch])).reshape(-1, batch)
    crops = torch.full((*order.shape, 2), augmentation.pad)
    flips, angles = torch.zeros_like(order, dtype=torch.bool), torch.zeros_like(order, dtype=torch.float64)
    return BatchPlan(order, crops, flips, angles, *[torch.arange(len(order))] * 2)
