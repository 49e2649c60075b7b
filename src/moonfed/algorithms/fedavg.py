"""FedAvg (McMahan et al. 2017): plain local SGD, then the share-weighted mean of the parties' models."""

from dataclasses import dataclass

import torch
from torch import Tensor

from moonfed.core.rules import LocalRule, Server
from moonfed.core.tree import add, prefixed, scale, under
from moonfed.core.types import PartyInfo, Population, Snapshot, State, Tensors, Upload


@dataclass(frozen=True)
class Plain(LocalRule):
    """SGD on cross-entropy and nothing else."""


@dataclass(frozen=True)
class Average(Server):
    """w <- w + sum_i share_i (w_i - w) over the cohort, shares by rows."""

    def contribute(self, upload: Upload, facts: PartyInfo, share: float) -> Tensors:
        return weighed(upload.delta, upload.buffers, share)

    def step(self, state: State, total: Tensors, population: Population) -> State:
        return state._replace(model=moved(state.model, mean_of("delta", total), total))


def weighed(delta: Tensors, buffers: Tensors, share: float) -> Tensors:
    """Multiply an update and its buffers by a share that need not sum to one over the cohort."""
    unit = next(iter(delta.values()))
    floats = {k: v.to(unit.dtype) for k, v in buffers.items()}
    weight = torch.tensor(share, dtype=unit.dtype, device=unit.device)
    return prefixed("delta", scale(delta, share)) | prefixed("buffers", scale(floats, share)) | {"share": weight}


def mean_of(name: str, total: Tensors) -> Tensors:
    """Divide the summed entries below a name by the summed shares."""
    return {k: v / total["share"] for k, v in under(name, total).items()}


def moved(model: Snapshot, delta: Tensors, total: Tensors) -> Snapshot:
    """Add delta to the weights and put the plain mean of the parties' buffers in place of the old ones."""
    means = mean_of("buffers", total)
    return Snapshot(add(model.weights, delta), {k: _as(v, means[k]) for k, v in model.buffers.items()})


def _as(old: Tensor, mean: Tensor) -> Tensor:
    return mean.to(old.dtype) if old.is_floating_point() else mean.round().to(old.dtype)
