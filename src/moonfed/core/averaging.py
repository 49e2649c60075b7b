"""Sums and means of what parties send, and the step that they move a model by."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from moonfed.core.tree import foreach_add, foreach_mul, parts_of, stack_rows
from moonfed.core.types import Snapshot, State, Tensors, Update, Upload

MAX_BYTES_TOGETHER = 1 << 26  # of contributions that are weighted at once


def weighted(delta: Tensors, buffers: Tensors, share: float) -> Tensors:
    """Multiply an update and its buffers by a share; shares need not sum to one over the cohort."""
    unit = next(iter(delta.values()))
    floats = {k: v.to(unit.dtype) for k, v in buffers.items()}
    parts = {f"delta/{k}": v for k, v in delta.items()} | {f"buffers/{k}": v for k, v in floats.items()}
    products = foreach_mul(list(parts.values()), share)
    return dict(zip(parts, products, strict=True)) | {"share": unit.new_full((), share)}


def total_of(parts: Iterable[Tensors]) -> Tensors:
    """Add up in order; nothing is the sum of nothing."""
    total: Tensors = {}
    for part in parts:
        if not total:
            total = part
            continue
        sums = foreach_add(list(total.values()), [part[k] for k in total])
        total = dict(zip(total, sums, strict=True))
    return total


def weighted_total(uploads: Sequence[Upload], shares: Sequence[float]) -> Tensors:
    """Add up the weighted updates and buffers of uploads in order: the bits of one by one, in fewer operations.

    Each upload is one row of a table. The weights are float32 or float64, and all of one type.
    """
    first, unit = uploads[0], next(iter(uploads[0].delta.values()))
    factors = unit.new_tensor(shares)[:, None]
    shapes = {f"delta/{k}": v.shape for k, v in first.delta.items()}
    shapes |= {f"buffers/{k}": v.shape for k, v in first.buffers.items()} | {"share": torch.Size()}
    lengths = [shape.numel() for shape in shapes.values()]
    at_once = max(1, MAX_BYTES_TOGETHER // (sum(lengths) * unit.element_size()))
    total: Tensor | None = None
    for start in range(0, len(uploads), at_once):
        some, own = uploads[start : start + at_once], factors[start : start + at_once]
        columns = [stack_rows([upload.delta[k] for upload in some]) for k in first.delta]
        columns += [stack_rows([upload.buffers[k] for upload in some]).to(unit.dtype) for k in first.buffers]
        flat = [column.reshape(len(some), -1) for column in columns]
        for row in torch.cat([*flat, torch.ones_like(own)], 1).mul_(own).unbind():
            total = row if total is None else total.add_(row)
    assert total is not None, "there are uploads"
    sums = parts_of(total, lengths)
    return {k: part.view(shape) for (k, shape), part in zip(shapes.items(), sums, strict=True)}


def mean_of(name: str, total: Tensors) -> Tensors:
    """Divide the summed entries below a name by the summed shares."""
    start = f"{name}/"
    return {k.removeprefix(start): v / total["share"] for k, v in total.items() if k.startswith(start)}


def mean_buffers(state: State, total: Tensors) -> Tensors:
    """Return the share-weighted mean of the parties' buffers, each in its own type."""
    means = mean_of("buffers", total)
    return {k: as_type(means[k], v.dtype) for k, v in state.model.buffers.items() if k in means}


def moved(state: State, step: Tensors, update: Update) -> State:
    """Add a step to the weights and take over the buffers and sent slots of an update.

    Private tensors are not part of an update and stay as they are.
    """
    weights = {k: v + step[k] if k in step else v for k, v in state.model.weights.items()}
    buffers = state.model.buffers | update.buffers
    return state._replace(model=Snapshot(weights, buffers), sent=state.sent | update.sent)


def as_type(mean: Tensor, dtype: torch.dtype) -> Tensor:
    """Give a mean the type of what was averaged; whole numbers are rounded."""
    return mean.to(dtype) if dtype.is_floating_point else mean.round().to(dtype)
