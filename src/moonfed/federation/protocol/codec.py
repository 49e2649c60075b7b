"""The flat form in which a state goes to a site and an update comes back, and the form an update must have."""

from collections.abc import Mapping
from typing import NamedTuple

import torch

from moonfed.core.rules import LocalRule
from moonfed.core.tree import pack, prefixed, under, unpack, zeros_like
from moonfed.core.types import InitModel, Optim, Outputs, PartyInfo, State, Tensors, Trained, Upload, as_snapshot
from moonfed.federation.protocol.signing import Numbers


class Like(NamedTuple):
    """The form of a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype


def flat_state(state: State) -> Tensors:
    """Flatten what a site is sent: the model and what goes with it, never what the server keeps."""
    return pack({"model": state.model}) | prefixed("sent", pack(state.sent))


def rebuilt_state(flat: Tensors) -> State:
    """Rebuild what flat_state flattened."""
    model = unpack({k: v for k, v in flat.items() if k.startswith("model/")})
    return State(as_snapshot(model, "model"), unpack(under("sent", flat)), {})


def flat_upload(upload: Upload) -> Tensors:
    """Flatten the tensors of an update; its steps and its mass travel as numbers."""
    return prefixed("delta", upload.delta) | prefixed("buffers", upload.buffers) | prefixed("slots", pack(upload.slots))


def rebuilt_upload(flat: Tensors, numbers: Numbers) -> Upload:
    """Rebuild what flat_upload flattened."""
    slots = unpack(under("slots", flat))
    return Upload(under("delta", flat), under("buffers", flat), slots, int(numbers["steps"]), float(numbers["mass"]))


def expected_upload(local: LocalRule, state: State, facts: PartyInfo, fresh: InitModel) -> Mapping[str, Like]:
    """Say what form an update must have: that of a party which trained and did not move."""
    state = state._replace(kept={})
    unit = next(iter(state.model.weights.values()))
    standing = Trained(state.model, zeros_like(state.model.weights), 1, 1.0)
    optim = Optim(*(unit.new_ones(()) for _ in range(3)))
    slots, _ = local.finish(standing, optim, state, local.init_memory(state, facts, fresh))
    upload = Upload(zeros_like(state.model.weights), state.model.buffers, slots, 1, 1.0)
    return {k: Like(tuple(v.shape), v.dtype) for k, v in flat_upload(upload).items()}


def expected_losses(local: LocalRule, state: State, facts: PartyInfo, fresh: InitModel) -> frozenset[str]:
    """Name the parts of the loss that a rule reports, by asking it for those of two rows and two classes."""
    state = state._replace(kept={})
    party = local.init_memory(state, facts, fresh)
    unit = next(iter(state.model.weights.values()))
    said = Outputs(*(unit.new_ones(2, 2) for _ in range(3)))
    anchors = dict.fromkeys(local.anchors(state, party), said)
    return frozenset(local.loss(said, torch.zeros(2, dtype=torch.int64), state.model.weights, anchors, state, party))
