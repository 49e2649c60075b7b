"""Hidden units in another order: which tensors move with a layer's units, and which order is nearest to a model.

A network that is a chain of layers computes the same when the units of a hidden layer change places: the rows of its
weight and bias, the entries of a normalisation after it, and the columns of the next layer's weight.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from moonfed.core.errors import UserError
from moonfed.core.types import Snapshot, Tensors

Order = Tensor | None  # int64 [unit]: which unit moves to each place; None: all stay


class ChainLayer(NamedTuple):
    """A layer of a chain: the names of its tensors, and how many inputs it has per unit of the layer before."""

    weight: str  # [unit, input] or [unit, channel, ...]
    rows: tuple[str, ...]  # weights with one row or entry per unit, its own and those of a normalisation after it
    buffers: tuple[str, ...]  # statistics with one entry per unit
    units: int
    block: int  # inputs per unit of the layer before: pixels of a channel that is flattened; 1 at the first layer


def layer_chain(model: Snapshot, method: str) -> list[ChainLayer]:
    """Read a model as a chain of layers by the names, shapes and order of its tensors, or refuse it for a method.

    The shapes cannot show how layers are connected: whether the order of units matters is tried on the network.
    """
    modules: dict[str, Tensors] = {}
    for name, weight in model.weights.items():
        modules.setdefault(name.rpartition(".")[0], {})[name] = weight
    found: list[list[str]] = []
    for module, tensors in modules.items():
        weight = tensors.get(f"{module}.weight")
        units = model.weights[found[-1][0]].shape[0] if found else -1
        if weight is not None and weight.dim() > 1:
            units = weight.shape[0]
            found.append([])
        for name, tensor in tensors.items():
            fits = name in (f"{module}.weight", f"{module}.bias") and tensor.shape[0:1] == (units,)
            if not fits or (tensor.dim() > 1 and tensor is not weight):
                raise not_a_chain(method, f"{name} of shape {list(tensor.shape)} is no part of one")
            found[-1].append(name)
    owners = {name.rpartition(".")[0]: place for place, rows in enumerate(found) for name in rows}
    buffers: list[list[str]] = [[] for _ in found]
    for name, buffer in model.buffers.items():
        place = owners.get(name.rpartition(".")[0], -1)
        if place < 0 or (buffer.dim() and buffer.shape != model.weights[found[place][-1]].shape):
            raise not_a_chain(method, f"{name} of shape {list(buffer.shape)} is no part of one")
        buffers[place] += [name] if buffer.dim() else []
    weights = [model.weights[rows[0]] for rows in found]
    blocks = [1] + [_block(one, other) for one, other in pairwise(weights)]
    for (before, *_), (name, *_), block in zip(found, found[1:], blocks[1:], strict=False):
        if not block:
            shapes = f"{before} {list(model.weights[before].shape)} and {name} {list(model.weights[name].shape)}"
            raise not_a_chain(method, f"{shapes} do not follow each other")
    parts = zip(found, buffers, weights, blocks, strict=True)
    return [ChainLayer(rows[0], tuple(rows), tuple(more), w.shape[0], block) for rows, more, w, block in parts]


def not_a_chain(method: str, why: str) -> UserError:
    """Say why a method cannot reorder the units of a network."""
    return UserError(
        f"{method} needs a network that is a chain of layers, where hidden units may change places; {why}; "
        "use --model cnn or mlp with --norm none or batch, or another method"
    )


def _block(before: Tensor, after: Tensor) -> int:
    """Count the inputs of a layer per unit of the layer before; 0 if they do not fit."""
    block, rest = divmod(after.shape[1], before.shape[0])
    flattened = before.dim() > 2 == after.dim()
    return block if not rest and (block == 1 or flattened) else 0


def reorder(chain: Sequence[ChainLayer], tensors: Tensors, orders: Sequence[Order]) -> Tensors:
    """Put the units of the first layers in an order; tensors that nothing changes are the same objects."""
    changed = dict(tensors)
    for layer, order in zip(chain, orders, strict=False):
        if order is not None:
            changed |= {name: changed[name][order] for name in (*layer.rows, *layer.buffers) if name in changed}
    for layer, order in zip(chain[1:], orders, strict=False):
        if order is not None and layer.weight in changed:
            columns = order[:, None] * layer.block + torch.arange(layer.block, device=order.device)
            changed[layer.weight] = changed[layer.weight][:, columns.flatten()]
    return changed


def match_units(chain: Sequence[ChainLayer], weights: Tensors, target: Tensors) -> list[Order]:
    """Find, from the first hidden layer to the last, the order of units that is nearest to a target's.

    The cost of a unit at a place is the squared distance of its row of weights and its bias from those of the target,
    once the inputs are in the order of the layer before. The units of the last layer, the outputs, stay.
    """
    orders: list[Order] = []
    for layer in chain[:-1]:
        here = reorder(chain, weights, orders)
        units, places = (torch.cat([_as_rows(t[k]) for k in layer.rows], 1) for t in (here, target))
        orders.append(_assign(units, places))
    return orders


def _as_rows(tensor: Tensor) -> Tensor:
    return tensor.reshape(len(tensor), -1)  # [unit, number]


def _assign(units: Tensor, places: Tensor) -> Order:
    """Assign units [unit, number] to places [place, number] with the Hungarian method; they stay unless that costs."""
    from scipy import optimize  # pyright: ignore  (it takes long to import, and has no types)

    costs = torch.cdist(places, units, compute_mode="donot_use_mm_for_euclid_dist").square()
    table = costs.double().cpu().numpy()
    rows, columns = cast("tuple[Any, Any]", optimize.linear_sum_assignment(table))  # pyright: ignore
    if table.trace() <= table[rows, columns].sum():
        return None
    return torch.as_tensor(columns, device=units.device)
