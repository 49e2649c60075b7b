"""The eager loop: the usual training loop, one party at a time, against which engines are timed and checked.

It is the one exception to "one SGD step in the package". It uses torch.nn and torch.optim.SGD on purpose, as one would
without this package, so that ending at the same weights is evidence. The comparison is fair: data is on the device,
nothing is evaluated, and anchors compute no gradients.
"""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy

from moonfed.algorithms.moon import MoonLocal
from moonfed.core.types import Snapshot, as_snapshot
from moonfed.data.augment import gather
from moonfed.data.batches import BatchPlan
from moonfed.data.dataset import Dataset
from moonfed.engines import Job


def eager_round(model: nn.Module, data: Dataset, jobs: Sequence[Job]) -> list[Snapshot]:
    """Train each job's party by FedAvg's or MOON's local steps; return each party's last model."""
    return [_train_party(model, data, job) for job in jobs]


def _train_party(model: nn.Module, data: Dataset, job: Job) -> Snapshot:
    net = _load(model, job.state.model).train()
    optimizer = torch.optim.SGD(net.parameters(), job.lr, momentum=job.momentum, weight_decay=job.weight_decay)
    anchors: list[nn.Module] = []
    if isinstance(job.local, MoonLocal):
        snapshots = (job.state.model, as_snapshot(job.memory, "previous0"))
        anchors = [_load(model, snapshot).eval() for snapshot in snapshots]
    plan = BatchPlan(*(part.to(data.inputs.device) for part in job.plan))
    for batch in zip(*plan, strict=True):
        x, y = gather(data, BatchPlan(*batch), torch.float32)
        optimizer.zero_grad()
        out = net(x)
        loss = cross_entropy(out.logits, y)
        if isinstance(job.local, MoonLocal):
            loss = loss + job.local.mu * _contrastive_loss(out.projection, anchors, x, job.local.temperature)
        loss.backward()
        optimizer.step()
    return Snapshot({k: v.detach() for k, v in net.named_parameters()}, dict(net.named_buffers()))


def _contrastive_loss(z: Tensor, anchors: list[nn.Module], x: Tensor, temperature: float) -> Tensor:
    with torch.no_grad():
        projections = [anchor(x).projection for anchor in anchors]
    similarities = torch.stack([cosine_similarity(z, other, dim=-1) for other in projections], 1) / temperature
    return cross_entropy(similarities, torch.zeros(len(z), dtype=torch.int64, device=z.device))


def _load(model: nn.Module, snapshot: Snapshot) -> nn.Module:
    net = copy.deepcopy(model).requires_grad_(True)
    net.load_state_dict(snapshot.weights | snapshot.buffers)
    return net
