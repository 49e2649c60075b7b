"""States and updates as flat dictionaries of tensors, and the form that an update must have."""

from collections.abc import Mapping
from typing import NamedTuple

import torch

from moonfed.core.files import pack, unpack
from moonfed.core.rules import LocalRule
from moonfed.core.tree import prefixed, under, zeros_like
from moonfed.core.types import (
    InitModel,
    Optim,
    Outputs,
    PartyInfo,
    State,
    StepContext,
    Tensors,
    Trained,
    Upload,
    as_snapshot,
)
from moonfed.federation.protocol.request import EFFECTIVE_STEPS, STEPS
from moonfed.federation.protocol.signing import Numbers


class TensorSpec(NamedTuple):
    """Shape and dtype of a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype


def encode_state(state: State) -> Tensors:
    """Flatten what a site is sent: the model and what goes with it, never the state that the server keeps."""
    return pack({"model": state.model}) | prefixed("sent", pack(state.sent))


def decode_state(flat: Tensors) -> State:
    """Rebuild a state from encode_state's result."""
    model = unpack({k: v for k, v in flat.items() if k.startswith("model/")})
    return State(as_snapshot(model, "model"), unpack(under("sent", flat)), {})


def encode_upload(upload: Upload) -> Tensors:
    """Flatten the tensors of an update; steps and effective steps are sent as numbers."""
    return prefixed("delta", upload.delta) | prefixed("buffers", upload.buffers) | prefixed("slots", pack(upload.slots))


def decode_upload(flat: Tensors, numbers: Numbers) -> Upload:
    """Rebuild an update from encode_upload's result and its numbers."""
    slots = unpack(under("slots", flat))
    steps, effective_steps = int(numbers[STEPS]), float(numbers[EFFECTIVE_STEPS])
    return Upload(under("delta", flat), under("buffers", flat), slots, steps, effective_steps)


def expected_upload(local: LocalRule, state: State, info: PartyInfo, init_model: InitModel) -> Mapping[str, TensorSpec]:
    """Say which tensors an update must have: those of a party that trained without moving."""
    state = state._replace(server_state={})
    unit = next(iter(state.model.weights.values()))
    standing = Trained(state.model, 1, 1.0)
    optim = Optim(*(unit.new_ones(()) for _ in range(4)))
    memory = local.init_memory(state, info, init_model)
    slots, _ = local.finish(standing, StepContext(state.model.weights, {}, state, memory, optim))
    upload = Upload(zeros_like(state.model.weights), state.model.buffers, slots, 1, 1.0)
    return {k: TensorSpec(tuple(v.shape), v.dtype) for k, v in encode_upload(upload).items()}


def expected_loss_names(local: LocalRule, state: State, info: PartyInfo, init_model: InitModel) -> frozenset[str]:
    """Name the parts of a rule's loss, found by evaluating it on two rows and two classes."""
    state = state._replace(server_state={})
    memory = local.init_memory(state, info, init_model)
    unit = next(iter(state.model.weights.values()))
    outputs = Outputs(*(unit.new_ones(2, 2) for _ in range(3)))
    anchors = dict.fromkeys(local.anchors(state, memory), outputs)
    labels = torch.zeros(2, dtype=torch.int64)
    optim = Optim(*(unit.new_ones(()) for _ in range(4)))
    return frozenset(local.loss(outputs, labels, StepContext(state.model.weights, anchors, state, memory, optim)))
