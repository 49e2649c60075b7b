"""Prepares the jobs of a stack before their steps, and turns what the last steps left into results."""

from collections.abc import Sequence

import torch

from moonfed.core.private_tensors import PRIVATE, private_part, public_part, with_private
from moonfed.core.rules import LocalRule
from moonfed.core.tree import foreach_sub, union
from moonfed.core.types import (
    InitModel,
    Optim,
    PartyInfo,
    PartyTensors,
    Slots,
    Snapshot,
    State,
    Tensors,
    Trained,
    Upload,
    as_snapshot,
)
from moonfed.engines.base import Job, JobResult
from moonfed.engines.local_optimizer import LocalOptimizer
from moonfed.engines.step import Carry, Fixed, context_of


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


def prepare(jobs: Sequence[Job]) -> list[tuple[Carry, Fixed, dict[str, Snapshot]]]:
    """Ask each job's rule where it starts from and which anchors it reads; jobs have rules and shapes in common.

    All numbers of all jobs go to the device together.
    """
    starts = [_start(job) for job in jobs]
    unit = next(iter(starts[0].weights.values()))
    names, rates = list(jobs[0].local.float_settings), len(Optim._fields)
    table = unit.new_tensor([_numbers(job) for job in jobs]).unbind()
    when = torch.tensor([(job.round, len(job.plan.rows)) for job in jobs], device=unit.device).unbind()
    at_rest = jobs[0].optimizer.init(starts[0].weights)
    prepared: list[tuple[Carry, Fixed, dict[str, Snapshot]]] = []
    for job, start, row, (at_round, steps) in zip(jobs, starts, table, when, strict=True):
        party = PartyTensors(row[rates + len(names)], row[rates + len(names) + 1 :])
        numbers = row[: rates + len(names)].unbind()
        floats = dict(zip(names, numbers[rates:], strict=True))
        optimizer: Slots = {k: job.memory[k] for k in job.optimizer.slots} if job.local.keeps_optimizer else at_rest
        fixed = Fixed(job.state, job.memory, Optim(*numbers[:rates]), floats, party, at_round, steps)
        prepared.append((Carry(start, optimizer), fixed, job.local.anchors(job.state, job.memory)))
    return prepared


def _start(job: Job) -> Snapshot:
    start = job.local.start(job.state, job.memory)
    return with_private(start, as_snapshot(job.memory, PRIVATE)) if job.private else start


def _numbers(job: Job) -> list[float]:
    """List the settings of a job's optimiser, those of its rule, and what is known of its party."""
    rates = (job.lr, job.momentum, job.weight_decay, job.max_grad_norm)  # as in Optim
    return [*rates, *job.local.float_settings.values(), job.info.rows, *job.info.class_counts]


def conclude(
    jobs: Sequence[Job],
    ends: Sequence[Carry],
    fixed: Sequence[Fixed],
    losses: Sequence[Tensors],
    gammas: Sequence[float | None],
) -> list[JobResult]:
    """Turn the last step of each job into its upload and its new memory; all updates are computed at once."""
    models = [public_part(end.model, job.private) for job, end in zip(jobs, ends, strict=True)]
    trained = [w for model in models for w in model.weights.values()]
    received = [own.state.model.weights[k] for model, own in zip(models, fixed, strict=True) for k in model.weights]
    updates = iter(foreach_sub(trained, received) if trained else ())  # none where all tensors are private
    results: list[JobResult] = []
    for job, end, model, own, parts, gamma in zip(jobs, ends, models, fixed, losses, gammas, strict=True):
        steps = len(job.plan.rows)
        effective = effective_steps_of(steps, job.momentum)
        done = Trained(end.model, steps, effective)
        slots, memory = job.local.finish(done, context_of(end.model.weights, {}, own, own.steps))
        if job.local.keeps_optimizer:
            memory = memory | end.optimizer
        if job.private:
            memory = memory | {PRIVATE: private_part(end.model, job.private)}
        delta = {k: next(updates) for k in model.weights}
        results.append(JobResult(Upload(delta, model.buffers, slots, steps, effective, job.lr), memory, parts, gamma))
    return results


def effective_steps_of(steps: int, momentum: float) -> float:
    """Sum the coefficients with which our SGD applies its gradients: the effective steps a_i."""
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
