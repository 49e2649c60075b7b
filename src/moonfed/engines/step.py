"""The only SGD of the package, and what every engine does before and after it."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from moonfed.core.rules import LocalRule
from moonfed.core.tree import norm, scale, sub, tree_map
from moonfed.core.types import Optim, Outputs, Slots, Snapshot, State, Tensors, Trained, Upload
from moonfed.data.augment import gather
from moonfed.data.batches import BatchPlan
from moonfed.data.dataset import Dataset
from moonfed.engines.dropout import begin_step, dropping


@dataclass(frozen=True)
class Job:
    """One party's round of one trial, ready to run."""

    party: int
    local: LocalRule
    state: State
    slots: Slots
    plan: BatchPlan
    lr: float
    momentum: float
    weight_decay: float
    probe: BatchPlan | None = None  # where the party's gradient is measured before and after, if it is


@dataclass(frozen=True)
class JobResult:
    """What a job gave."""

    upload: Upload
    slots: Slots
    losses: Tensors  # each named part of the loss: [step], on the CPU
    gamma: float | None = None  # norm of the local gradient after over before


@dataclass(frozen=True)
class Options:
    """How an engine goes about its work; what it computes is the same to the rounding of its precision."""

    precision: str = "fp32"
    lanes: int = 0  # most at once; 0: as many as pay
    compile: bool = False
    say: Callable[[str], None] = lambda line: None


PLAIN = Options()


class Nets(NamedTuple):
    """The network twice, as code without weights of its own: for the steps, and for anchors and evaluation."""

    training: nn.Module
    frozen: nn.Module


class Carry(NamedTuple):
    """What changes from step to step."""

    model: Snapshot
    velocity: Tensors


class Fixed(NamedTuple):
    """What a step may read and no step changes."""

    state: State
    party: Slots
    optim: Optim
    floats: Tensors  # the rule's float settings, one value a lane


class Seen(NamedTuple):
    """A batch and what the anchors say of it."""

    x: Tensor
    y: Tensor
    anchors: dict[str, Outputs]
    key: Tensor  # int64: what dropout draws from


def prepare(job: Job) -> tuple[Carry, Fixed, dict[str, Snapshot]]:
    """Ask the rule where a job starts from, and through which anchors it looks."""
    state = job.state._replace(kept={})
    start = job.local.start(state, job.slots)
    unit = next(iter(start.weights.values()))
    optim = Optim(*(unit.new_full((), v) for v in (job.lr, job.momentum, job.weight_decay)))
    floats = {k: unit.new_full((), v) for k, v in float_settings(job.local).items()}
    carry = Carry(start, job.local.velocity(state, job.slots))
    return carry, Fixed(state, job.slots, optim, floats), job.local.anchors(state, job.slots)


def float_settings(local: LocalRule) -> dict[str, float]:
    """List the settings of a rule that may differ from lane to lane."""
    return {f.name: getattr(local, f.name) for f in fields(local) if f.type is float}  # type: ignore[arg-type]


def look(net: nn.Module, anchor: Snapshot, x: Tensor) -> Outputs:
    """See a batch through a frozen model."""
    return functional_call(net, (anchor.weights, anchor.buffers), (x,))


Each = Callable[[Callable[..., Any]], Callable[..., Any]]  # makes a function of one lane one of many: vmap


def alone(of_one: Callable[..., Any]) -> Callable[..., Any]:
    """Leave a function of one lane as it is."""
    return of_one


def step(
    net: nn.Module, local: LocalRule, carry: Carry, seen: Seen, fixed: Fixed, each: Each = alone
) -> tuple[Carry, Tensors]:
    """Take one step of SGD with momentum and weight decay; return the parts of its loss too."""
    grads, parts, buffers = gradient(net, local, carry.model, seen, fixed, each)
    return each(partial(_update, local))(carry, grads, buffers, fixed), parts


def _update(local: LocalRule, carry: Carry, grads: Tensors, buffers: Tensors, fixed: Fixed) -> Carry:
    rule = _with_floats(local, fixed.floats)
    grads = rule.transform_gradient(grads, fixed.state, fixed.party)
    optim, weights = fixed.optim, carry.model.weights
    velocity = {k: optim.momentum * v + (grads[k] + optim.weight_decay * weights[k]) for k, v in carry.velocity.items()}
    model = Snapshot({k: w - optim.lr * velocity[k] for k, w in weights.items()}, buffers)
    return Carry(rule.after_step(model, optim, fixed.state, fixed.party), velocity)


def gradient(
    net: nn.Module, local: LocalRule, model: Snapshot, seen: Seen, fixed: Fixed, each: Each = alone
) -> tuple[Tensors, Tensors, Tensors]:
    """Differentiate a rule's loss; return gradients, loss parts, and the buffers after the forward pass.

    Lanes do not see each other, so the gradient of the sum of their losses is the gradient of each.
    """
    weights = {k: w.detach().requires_grad_() for k, w in model.weights.items()}
    with torch.enable_grad():
        losses, parts, buffers = each(partial(_objective, net, local))(weights, model.buffers, seen, fixed)
        grads = torch.autograd.grad(losses.sum(), list(weights.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(weights, grads, strict=True)), tree_map(torch.detach, parts), tree_map(torch.detach, buffers)


def _objective(
    net: nn.Module, local: LocalRule, weights: Tensors, buffers: Tensors, seen: Seen, fixed: Fixed
) -> tuple[Tensor, Tensors, Tensors]:
    rule = _with_floats(local, fixed.floats)
    # BatchNorm writes into its buffers: it gets a copy made in here, or vmap would see a write from outside.
    buffers = {k: v.clone() for k, v in buffers.items()}
    with dropping(net, seen.key):
        out = functional_call(net, (weights, buffers), (seen.x,))
    parts = rule.loss(out, seen.y, weights, seen.anchors, fixed.state, fixed.party)
    return torch.stack(list(parts.values())).sum(), parts, buffers


def _with_floats(local: LocalRule, floats: Tensors) -> LocalRule:
    return replace(local, **floats) if floats else local  # type: ignore[type-var]


def conclude(job: Job, carry: Carry, fixed: Fixed, losses: Tensors, gamma: float | None) -> JobResult:
    """Turn a job's last step into its upload and its new memory."""
    steps = len(job.plan.rows)
    effective_steps = effective_steps_of(steps, job.momentum)
    trained = Trained(carry.model, carry.velocity, steps, effective_steps)
    uploaded, kept = job.local.finish(trained, fixed.optim, fixed.state, fixed.party)
    delta = sub(carry.model.weights, fixed.state.model.weights)
    return JobResult(Upload(delta, carry.model.buffers, uploaded, steps, effective_steps), kept, losses, gamma)


def effective_steps_of(steps: int, momentum: float) -> float:
    """Sum the coefficients with which our SGD has applied its gradients: FedNova's a_i."""
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)


def gradient_norm(nets: Nets, data: Dataset, job: Job, model: Snapshot) -> Tensor:
    """Measure the norm of the gradient of a party's whole objective, its own rows unaugmented, at a model."""
    assert job.probe is not None
    _, fixed, anchors = prepare(job)
    x, y = gather(data, on(data, job.probe), next(iter(model.weights.values())).dtype)
    total: Tensors | None = None
    for xs, ys, key in zip(x, y, job.probe.keys.to(x.device), strict=True):
        seen = Seen(xs, ys, {k: look(nets.frozen, a, xs) for k, a in anchors.items()}, key)
        begin_step(nets.training, key)
        grads, _, _ = gradient(nets.training, job.local, model, seen, fixed)
        total = grads if total is None else tree_map(torch.add, total, grads)
    assert total is not None
    return norm(scale(total, 1 / len(x)))


def reached(nets: Nets, data: Dataset, job: Job, end: Snapshot) -> float | None:
    """Measure gamma of Definition 2 in Shi: the norm of the local gradient after the round over before it."""
    if job.probe is None:
        return None
    start = job.local.start(job.state, job.slots)
    return float(gradient_norm(nets, data, job, end) / gradient_norm(nets, data, job, start))


def on(data: Dataset, plan: BatchPlan) -> BatchPlan:
    """Bring a plan to the device of the data."""
    return BatchPlan(*(part.to(data.inputs.device, non_blocking=True) for part in plan))
