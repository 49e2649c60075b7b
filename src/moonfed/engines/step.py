"""The only training step of the package, and what every engine does before and after it."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.func import functional_call

from moonfed.core.private_tensors import PRIVATE, private_part, public_part, with_private
from moonfed.core.rules import LocalRule
from moonfed.core.tree import add, norm, scale, tree_map, union
from moonfed.core.types import (
    Clock,
    InitModel,
    Optim,
    Outputs,
    PartyInfo,
    PartyTensors,
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
from moonfed.data.augment import gather
from moonfed.data.batches import BatchPlan
from moonfed.data.dataset import Dataset
from moonfed.engines.base import Job, JobResult, Nets
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


def first_memory(
    local: LocalRule,
    optimizer: LocalOptimizer,
    state: State,
    info: PartyInfo,
    init_model: InitModel,
    private: frozenset[str],
) -> Slots:
    """Make a party's memory at its first participation: that of its rule and of the rule's companion.

    It includes the party's private tensors and an optimiser that is kept.
    """
    memory = local.init_memory(state, info, init_model)
    if private:
        memory = memory | {PRIVATE: private_part(state.model, private)}
    if local.keeps_optimizer:
        memory = memory | optimizer.init(local.start(state, memory).weights)
    if local.companion is not None:
        beside = first_memory(local.companion, optimizer, state, info, init_model, frozenset())
        memory = union(memory, beside)
    return memory


def prepare(job: Job) -> tuple[Carry, Fixed, dict[str, Snapshot]]:
    """Ask the rule where a job starts from and which anchors it reads."""
    state = job.state
    start = job.local.start(state, job.memory)
    if job.private:
        start = with_private(start, as_snapshot(job.memory, PRIVATE))
    unit = next(iter(start.weights.values()))
    rates = (job.lr, job.momentum, job.weight_decay, job.max_grad_norm)
    optim = Optim(*(unit.new_full((), v) for v in rates))
    floats = {name: unit.new_full((), value) for name, value in job.local.float_settings.items()}
    if job.local.keeps_optimizer:
        optimizer: Slots = {k: job.memory[k] for k in job.optimizer.slots}
    else:
        optimizer = job.optimizer.init(start.weights)
    when = (torch.full((), value, device=unit.device) for value in (job.round, len(job.plan.rows)))
    fixed = Fixed(state, job.memory, optim, floats, party_tensors(job.info, unit), *when)
    return Carry(start, optimizer), fixed, job.local.anchors(state, job.memory)


def _context(weights: Tensors, anchors: dict[str, Outputs], fixed: Fixed, number: Tensor) -> StepContext:
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
    return add(weights, _with_floats(local, fixed.floats).perturb(grads, _context(weights, {}, fixed, number)))


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
    ctx = _context(weights, {}, fixed, number)
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
    parts = rule.loss(out, batch.y, _context(weights, batch.anchors, fixed, batch.number))
    return torch.stack(list(parts.values())).sum(), parts, buffers


def _with_floats(local: LocalRule, floats: Tensors) -> LocalRule:
    return replace(local, **floats) if floats else local  # type: ignore[arg-type]


def conclude(job: Job, carry: Carry, fixed: Fixed, losses: Tensors, gamma: float | None) -> JobResult:
    """Turn a job's last step into its upload and its new memory."""
    steps = len(job.plan.rows)
    effective = effective_steps_of(steps, job.momentum)
    trained = Trained(carry.model, steps, effective)
    slots, memory = job.local.finish(trained, _context(carry.model.weights, {}, fixed, fixed.steps))
    if job.local.keeps_optimizer:
        memory = memory | carry.optimizer
    if job.private:
        memory = memory | {PRIVATE: private_part(carry.model, job.private)}
    public = public_part(carry.model, job.private)
    delta = {k: w - fixed.state.model.weights[k] for k, w in public.weights.items()}
    return JobResult(Upload(delta, public.buffers, slots, steps, effective, job.lr), memory, losses, gamma)


def effective_steps_of(steps: int, momentum: float) -> float:
    """Sum the coefficients with which our SGD applies its gradients: the effective steps a_i."""
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)


def gradient_norm(nets: Nets, data: Dataset, job: Job, probe: BatchPlan, model: Snapshot) -> Tensor:
    """Compute the norm of the gradient of a party's whole objective, its rows unaugmented, at a model."""
    _, fixed, anchors = prepare(job)
    x, y = gather(data, on_device(data, probe), next(iter(model.weights.values())).dtype)
    total: Tensors = {}
    for xs, ys, key, number in zip(x, y, *(part.to(x.device) for part in (probe.keys, probe.numbers)), strict=True):
        outputs = {k: functional_call(nets.inference, a, xs) for k, a in anchors.items()}
        batch = Batch(xs, ys, outputs, key, number)
        seed_step(nets, key)
        grads, _, _ = gradient(nets, job.local, single_lane, model, batch, fixed)
        total = tree_map(torch.add, total, grads) if total else grads
    return norm(scale(total, 1 / len(x)))


def gamma_of(nets: Nets, data: Dataset, job: Job, end: Snapshot) -> float | None:
    """Measure gamma of Definition 2 in Shi: the norm of the local gradient after the round over before it."""
    if job.probe is None:
        return None
    start, _, _ = prepare(job)
    after, before = (gradient_norm(nets, data, job, job.probe, model) for model in (end, start.model))
    return float(after / before)


def on_device(data: Dataset, plan: BatchPlan) -> BatchPlan:
    """Copy a plan to the device of the data."""
    return BatchPlan(*(part.to(data.inputs.device, non_blocking=True) for part in plan))
