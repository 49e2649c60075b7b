"""Sums over rows of what a function gives for a model's outputs: the only loop over rows without gradients.

Queries, evaluation and sites share it. Rows go through the network in eval mode, without augmentation, in batches.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call

from moonfed.core.phase import Query
from moonfed.core.tree import add
from moonfed.core.types import Outputs, Snapshot, Tensors
from moonfed.data.augment import normalise
from moonfed.data.dataset import Dataset
from moonfed.data.partition import Rows
from moonfed.engines.devices import Device, is_gpu, rows_per_forward, single_threaded
from moonfed.engines.engine_choice import MAX_STACKED_WEIGHTS

BatchMap: TypeAlias = Callable[[Outputs, Tensor], Tensors]
"""Takes a batch's outputs and labels and returns sums over its rows."""


@torch.no_grad()
def sum_batches(
    net: nn.Module,
    data: Dataset,
    model: Snapshot,
    inputs: Tensor,
    labels: Tensor,
    of_batch: BatchMap,
    places: Tensor | None = None,
) -> Tensors:
    """Add up what a function gives for batches of rows, in the order of their places, or of all; inputs are raw."""
    weights = model.weights.values()
    dtype, size = next(iter(weights)).dtype, rows_per_forward(sum(w.numel() for w in weights), inputs.device)
    total: Tensors = {}
    for first in range(0, len(labels if places is None else places), size):
        here = slice(first, first + size)
        rows = here if places is None else places[here]
        x = normalise(data, inputs[rows], dtype)
        part = of_batch(functional_call(net, (model.weights, model.buffers), (x,)), labels[rows])
        total = add(total, part) if total else part
    return total


def sum_query(net: nn.Module, data: Dataset, model: Snapshot, rows: Rows, query: Query) -> Tensors:
    """Answer a query about training rows."""
    places = torch.as_tensor(rows).to(data.inputs.device)
    with steady_threads(data.inputs.device, model):
        return sum_batches(net, data, model, data.inputs, data.labels, query.map, places)


def steady_threads(device: Device, model: Snapshot) -> AbstractContextManager[None]:
    """Keep the number of cores from changing a bit: one thread on a CPU, except for large models."""
    large = sum(w.numel() for w in model.weights.values()) > MAX_STACKED_WEIGHTS
    return nullcontext() if is_gpu(device) or large else single_threaded()
