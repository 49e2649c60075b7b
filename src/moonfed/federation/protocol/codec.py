"""States and updates as flat dictionaries of tensors, and the form that an update must have."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import nn

from moonfed.core.files import pack, unpack
from moonfed.core.phase import Query
from moonfed.core.private_tensors import public_part
from moonfed.core.rules import LocalRule
from moonfed.core.tree import prefixed, under, zeros_like
from moonfed.core.types import (
    Clock,
    InitModel,
    Optim,
    Outputs,
    PartyInfo,
    Slots,
    Snapshot,
    State,
    StepContext,
    Tensors,
    Trained,
    Upload,
    as_snapshot,
    party_tensors,
)
from moonfed.data.dataset import Dataset
from moonfed.engines.companions import PREFIX
from moonfed.engines.query import sum_batches
from moonfed.federation.protocol.request import EFFECTIVE_STEPS, STEPS
from moonfed.federation.protocol.signing import Numbers


class TensorSpec(NamedTuple):
    """Shape and dtype of a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        """Bytes that the tensor takes."""
        return math.prod(self.shape) * self.dtype.itemsize


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


def expected_upload(
    local: LocalRule, state: State, info: PartyInfo, init_model: InitModel, private: frozenset[str] = frozenset()
) -> Mapping[str, TensorSpec]:
    """Say which tensors an update must have: those of a party that trained without moving."""
    state = state._replace(server_state={})
    standing = Trained(state.model, 1, 1.0)
    memory = local.init_memory(state, info, init_model)
    slots, _ = local.finish(standing, _standing_context(state, memory, info))
    public = public_part(state.model, private)
    upload = Upload(zeros_like(public.weights), public.buffers, slots, 1, 1.0)
    return {k: TensorSpec(tuple(v.shape), v.dtype) for k, v in encode_upload(upload).items()}


def expected_loss_names(local: LocalRule, state: State, info: PartyInfo, init_model: InitModel) -> frozenset[str]:
    """Name the parts of a rule's loss, and of its companion's, found by evaluating them on two rows."""
    beside = local.companion
    companion = expected_loss_names(beside, state, info, init_model) if beside is not None else frozenset[str]()
    state = state._replace(server_state={})
    memory = local.init_memory(state, info, init_model)
    unit = next(iter(state.model.weights.values()))
    outputs = Outputs(*(unit.new_ones(2, width) for width in (2, 2, len(info.class_counts))))
    anchors = dict.fromkeys(local.anchors(state, memory), outputs)
    labels = torch.zeros(2, dtype=torch.int64)
    parts = local.loss(outputs, labels, _standing_context(state, memory, info)._replace(anchors=anchors))
    return frozenset(parts) | {f"{PREFIX}{name}" for name in companion}


def expected_answer(net: nn.Module, data: Dataset, model: Snapshot, query: Query) -> Mapping[str, TensorSpec]:
    """Say which tensors the answer to a query must have: those of an answer about one of the test rows."""
    row = data.test_inputs[:1], torch.zeros_like(data.test_labels[:1])
    answer = sum_batches(net, data, model, *row, query.map)
    return {k: TensorSpec(tuple(v.shape), v.dtype) for k, v in answer.items()}


def _standing_context(state: State, memory: Slots, info: PartyInfo) -> StepContext:
    """Make the context of a step that moves nothing."""
    unit = next(iter(state.model.weights.values()))
    optim, clock = Optim(*(unit.new_ones(()) for _ in range(4))), Clock(*torch.zeros(3, dtype=torch.int64))
    return StepContext(state.model.weights, {}, state, memory, optim, party_tensors(info, unit), clock)
