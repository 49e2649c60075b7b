"""The plain eager loop that every other implementation has, one party at a time: what our engines are measured against.

It is written as one would write it without this package, from torch.nn and torch.optim, so that ending at the same
weights means something. It is kept honest: data on the device, no evaluation, anchors without gradients.
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


def plain_round(model: nn.Module, data: Dataset, jobs: Sequence[Job]) -> list[Snapshot]:
    """Train each job's party by FedAvg's or MOON's local steps; return where each ended."""
    return [_party(model, data, job) for job in jobs]


def _party(model: nn.Module, data: Dataset, job: Job) -> Snapshot:
    net = _holding(model, job.state.model).train()
    optimizer = torch.optim.SGD(net.parameters(), job.lr, momentum=job.momentum, weight_decay=job.weight_decay)
    anchors: list[nn.Module] = []
    if isinstance(job.local, MoonLocal):
        seen_through = (job.state.model, as_snapshot(job.memory, "previous0"))
        anchors = [_holding(model, snapshot).eval() for snapshot in seen_through]
    plan = BatchPlan(*(part.to(data.inputs.device) for part in job.plan))
    for batch in zip(*plan, strict=True):
        x, y = gather(data, BatchPlan(*batch), torch.float32)
        optimizer.zero_grad()
        out = net(x)
        loss = cross_entropy(out.logits, y)
        if isinstance(job.local, MoonLocal):
            loss = loss + job.local.mu * _contrast(out.projection, anchors, x, job.local.temperature)
        loss.backward()
        optimizer.step()
    return Snapshot({k: v.detach() for k, v in net.named_parameters()}, dict(net.named_buffers()))


def _contrast(z: Tensor, anchors: list[nn.Module], x: Tensor, temperature: float) -> Tensor:
    with torch.no_grad():
        others = [anchor(x).projection for anchor in anchors]
    similar = torch.stack([cosine_similarity(z, other, dim=-1) for other in others], 1) / temperature
    return cross_entropy(similar, torch.zeros(len(z), dtype=torch.int64, device=z.device))


def _holding(model: nn.Module, snapshot: Snapshot) -> nn.Module:
    net = copy.deepcopy(model).requires_grad_(True)
    net.load_state_dict(snapshot.weights | snapshot.buffers)
    return net
