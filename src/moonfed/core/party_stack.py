"""The models of all parties as one: every tensor has a leading party axis, so that none is copied to be read."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from moonfed.core.averaging import as_type
from moonfed.core.topology import Mixing
from moonfed.core.types import Slots, Snapshot, Upload, as_snapshot


def stack_of(model: Snapshot, parties: int) -> Snapshot:
    """Give every party the same model, without a copy."""
    return Snapshot(*({k: v.expand(parties, *v.shape) for k, v in part.items()} for part in model))


def party_model(stack: Snapshot, party: int, model: Snapshot) -> Snapshot:
    """Return a party's model as views; tensors that the stack does not have are those of another model."""
    weights = {k: stack.weights[k][party] if k in stack.weights else v for k, v in model.weights.items()}
    buffers = {k: stack.buffers[k][party] if k in stack.buffers else v for k, v in model.buffers.items()}
    return Snapshot(weights, buffers)


def remembered_stack(slots: Slots, name: str) -> Snapshot | None:
    """Return the stack in a slot; None before there is one, while all parties have the same model."""
    return as_snapshot(slots, name) if name in slots else None


def size_of(stack: Snapshot) -> int:
    """Count the parties of a stack."""
    return len(next(iter(stack.weights.values())))


def mean_over(stack: Snapshot) -> Snapshot:
    """Average over the parties; whole numbers are rounded."""
    return Snapshot(*({k: as_type(_real(v).mean(0), v.dtype) for k, v in part.items()} for part in stack))


def mix(stack: Snapshot, uploads: Mapping[int, Upload], mixing: Mixing) -> Snapshot:
    """Let the parties that trained mix their new models, and the others keep theirs; the result has what travels."""
    parties, sent = list(uploads), list(uploads.values())
    weights, buffers = dict[str, Tensor](), dict[str, Tensor]()
    for k in [k for k in stack.weights if k in sent[0].delta]:
        trained = stack.weights[k][parties] + torch.stack([upload.delta[k] for upload in sent])
        weights[k] = _mixed_into(stack.weights[k], parties, trained, mixing)
    for k in [k for k in stack.buffers if k in sent[0].buffers]:
        buffers[k] = _mixed_into(stack.buffers[k], parties, torch.stack([upload.buffers[k] for upload in sent]), mixing)
    return Snapshot(weights, buffers)


def _mixed_into(old: Tensor, parties: Sequence[int], trained: Tensor, mixing: Mixing) -> Tensor:
    """Mix the present parties' tensors, [present, ...], and put them into those of all, [party, ...]."""
    rows = torch.tensor(parties, device=old.device)
    index = torch.as_tensor(mixing.members, device=old.device)  # [present, place]
    values, total = _real(trained), torch.zeros_like(_real(trained))
    weight = torch.as_tensor(mixing.weight).to(total)
    for place in range(index.shape[1]):  # as many as the largest degree, in the order of the parties
        total += weight[:, place].view(-1, *[1] * (values.dim() - 1)) * values[index[:, place]]
    return old.index_copy(0, rows, as_type(total, old.dtype))


def _real(tensor: Tensor) -> Tensor:
    return tensor if tensor.is_floating_point() else tensor.double()
