"""The only training step of the package."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.func import functional_call

from moonfed.core.rules import LocalRule
from moonfed.core.tree import add, norm, scale, tree_map
from moonfed.core.types import (
    Clock,
    Optim,
    Outputs,
    PartyTensors,
    Slots,
    Snapshot,
    State,
    StepContext,
    Tensors,
)
from moonfed.data.batches import BatchPlan
from moonfed.data.dataset import Dataset
from moonfed.engines.base import Nets
from moonfed.engines.dropout import CounterDropout, seed_step
from moonfed.engines.local_optimizer import LocalOptimizer

CLIP_EPSILON = 1e-6  # as torch.nn.utils.clip_grad_norm_ has it


class Carry(NamedTuple):
    """What changes from step to step."""

    model: Snapshot
    optimizer: Slots  # the local optimiser's state


class Fixed(NamedTuple):
    """What a step reads and no step changes."""

    state: State
    memory: Slots
    optim: Optim
    floats: Tensors  # the rule's float settings, one value per lane
    party: PartyTensors
    round: Tensor
    steps: Tensor  # of the party's round


class Batch(NamedTuple):
    """A batch and the anchors' outputs for it."""

    x: Tensor
    y: Tensor
    anchors: dict[str, Outputs]
    key: Tensor  # int64: the seed of dropout
    number: Tensor  # int64: of the step within the round


def context_of(weights: Tensors, anchors: dict[str, Outputs], fixed: Fixed, number: Tensor) -> StepContext:
    """Gather what a rule may read; number is that of the step."""
    clock = Clock(fixed.round, number, fixed.steps)
    return StepContext(weights, anchors, fixed.state, fixed.memory, fixed.optim, fixed.party, clock)


Vectorize = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Turns a function of one lane into a function of stacked lanes: vmap."""
F = TypeVar("F")


def single_lane(function: F) -> F:
    """Return a function of one lane unchanged."""
    return function


def step(
    nets: Nets,
    local: LocalRule,
    optimizer: LocalOptimizer,
    clip: bool,
    vectorize: Vectorize,
    carry: Carry,
    batch: Batch,
    fixed: Fixed,
) -> tuple[Carry, Tensors]:
    """Take one step of the optimiser; return the parts of its loss too.

    Where a rule asks for a second gradient, that one is applied; loss and buffers are those of the first. Both are of
    the same batch with the same noise: torch's generator, where a network draws from it, starts anew.
    """
    grads, parts, buffers = gradient(nets, local, vectorize, carry.model, batch, fixed)
    if local.takes_second_gradient:
        moved = vectorize(partial(_perturbed, local))(carry.model.weights, grads, batch.number, fixed)
        seed_step(nets, batch.key)
        grads, _, _ = gradient(nets, local, vectorize, carry.model._replace(weights=moved), batch, fixed)
    return vectorize(partial(_update, local, optimizer, clip))(carry, grads, buffers, batch.number, fixed), parts


def _perturbed(local: LocalRule, weights: Tensors, grads: Tensors, number: Tensor, fixed: Fixed) -> Tensors:
    return add(weights, _with_floats(local, fixed.floats).perturb(grads, context_of(weights, {}, fixed, number)))


def _update(
    local: LocalRule,
    optimizer: LocalOptimizer,
    clip: bool,
    carry: Carry,
    grads: Tensors,
    buffers: Tensors,
    number: Tensor,
    fixed: Fixed,
) -> Carry:
    rule, optim, weights = _with_floats(local, fixed.floats), fixed.optim, carry.model.weights
    ctx = context_of(weights, {}, fixed, number)
    grads = rule.transform_gradient(grads, ctx)
    if clip:
        grads = scale(grads, torch.clamp(optim.max_grad_norm / (norm(grads) + CLIP_EPSILON), max=1.0))
    after, state = optimizer.step(weights, grads, carry.optimizer, optim)
    return Carry(rule.after_step(Snapshot(after, buffers), ctx), state)


def gradient(
    nets: Nets, local: LocalRule, vectorize: Vectorize, model: Snapshot, batch: Batch, fixed: Fixed
) -> tuple[Tensors, Tensors, Tensors]:
    """Differentiate a rule's loss; return gradients, loss parts, and the buffers after the forward pass.

    Lanes are independent, so the gradient of the sum of their losses is the gradient of each.
    """
    weights = {k: w.detach().requires_grad_() for k, w in model.weights.items()}
    with torch.enable_grad():
        losses, parts, buffers = vectorize(partial(_objective, nets, local))(weights, model.buffers, batch, fixed)
        grads = torch.autograd.grad(losses.sum(), list(weights.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(weights, grads, strict=True)), tree_map(torch.detach, parts), tree_map(torch.detach, buffers)


def _objective(
    nets: Nets, local: LocalRule, weights: Tensors, buffers: Tensors, batch: Batch, fixed: Fixed
) -> tuple[Tensor, Tensors, Tensors]:
    rule = _with_floats(local, fixed.floats)
    # BatchNorm writes into its buffers. The copy is made here because vmap refuses writes to tensors from outside.
    buffers = {k: v.clone() for k, v in buffers.items()}
    with CounterDropout(batch.key) if nets.uses_dropout else nullcontext():
        out = functional_call(nets.training, (weights, buffers), batch.x)
    parts = rule.loss(out, batch.y, context_of(weights, batch.anchors, fixed, batch.number))
    return torch.stack(list(parts.values())).sum(), parts, buffers


def _with_floats(local: LocalRule, floats: Tensors) -> LocalRule:
    return replace(local, **floats) if floats else local  # type: ignore[arg-type]


def on_device(data: Dataset, plan: BatchPlan) -> BatchPlan:
    """Copy a plan to the device of the data."""
    return BatchPlan(*(part.to(data.inputs.device, non_blocking=True) for part in plan))
