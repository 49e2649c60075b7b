"""Measures gamma: how far local training reduces the gradient of a party's objective."""

import torch
from torch import Tensor
from torch.func import functional_call

from moonfed.core.tree import norm, scale, tree_map
from moonfed.core.types import Snapshot, Tensors
from moonfed.data.augment import gather
from moonfed.data.batches import BatchPlan
from moonfed.data.dataset import Dataset
from moonfed.engines.base import Job, Nets
from moonfed.engines.dropout import seed_step
from moonfed.engines.party_round import prepare
from moonfed.engines.step import Batch, gradient, on_device, single_lane


def gradient_norm(nets: Nets, data: Dataset, job: Job, probe: BatchPlan, model: Snapshot) -> Tensor:
    """Compute the norm of the gradient of a party's whole objective, its rows unaugmented, at a model."""
    ((_, fixed, anchors),) = prepare([job])
    x, y = gather(data, on_device(data, probe), next(iter(model.weights.values())).dtype)
    total: Tensors = {}
    for xs, ys, key, number in zip(x, y, *(part.to(x.device) for part in (probe.keys, probe.numbers)), strict=True):
        outputs = {k: functional_call(nets.inference, a, xs) for k, a in anchors.items()}
        batch = Batch(xs, ys, outputs, key, number)
        seed_step(nets, key)
        grads, _, _ = gradient(nets, job.local, single_lane, model, batch, fixed)
        total = tree_map(torch.add, total, grads) if total else grads
    return norm(scale(total, 1 / len(x)))


def gamma_of(nets: Nets, data: Dataset, job: Job, end: Snapshot) -> float | None:
    """Measure gamma of Definition 2 in Shi: the norm of the local gradient after the round over before it."""
    if job.probe is None:
        return None
    ((start, _, _),) = prepare([job])
    after, before = (gradient_norm(nets, data, job, job.probe, model) for model in (end, start.model))
    return float(after / before)
