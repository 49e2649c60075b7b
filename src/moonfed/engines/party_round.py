"""Prepares the jobs of a stack before their steps, and turns what the last steps left into results."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from moonfed.core.private_tensors import PRIVATE, private_part, public_part, with_private
from moonfed.core.rules import LocalRule
from moonfed.core.tree import base_of, fill_tree, leaves, rows_of, stack_rows, union
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
from moonfed.engines.stacked.lanes import copied
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
    values = [_numbers(job) for job in jobs]
    alone = rates + len(names) + 1  # settings and the number of rows: one number of each job; then the class counts
    table, times = unit.new_tensor(values), [(job.round, len(job.plan.rows)) for job in jobs]
    columns = _columns([own[:alone] for own in values], table)
    class_counts = table[:, alone:].unbind()
    when = _columns(times, torch.tensor(times, device=unit.device))
    at_rest = jobs[0].optimizer.init(starts[0].weights)
    prepared: list[tuple[Carry, Fixed, dict[str, Snapshot]]] = []
    for job, start, numbers, counts, *clock in zip(
        jobs, starts, zip(*columns, strict=True), class_counts, *when, strict=True
    ):
        optim, floats = Optim(*numbers[:rates]), dict(zip(names, numbers[rates:-1], strict=True))
        optimizer: Slots = {k: job.memory[k] for k in job.optimizer.slots} if job.local.keeps_optimizer else at_rest
        fixed = Fixed(job.state, job.memory, optim, floats, PartyTensors(numbers[-1], counts), *clock)
        prepared.append((Carry(start, optimizer), fixed, job.local.anchors(job.state, job.memory)))
    return prepared


def _columns(values: Sequence[Sequence[float]], table: Tensor) -> list[Sequence[Tensor]]:
    """List the first columns of a table by job; where all jobs have the same value, they have the same tensor."""
    columns = zip(zip(*values, strict=True), table.unbind(1), strict=False)
    return [[own[0]] * len(own) if len(set(column)) == 1 else own.unbind() for column, own in columns]


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
    losses: Iterable[Tensors],
    gammas: Sequence[float | None],
) -> list[JobResult]:
    """Turn the last step of each job into its upload and its new memory; all updates are computed at once."""
    models = [public_part(end.model, job.private) for job, end in zip(jobs, ends, strict=True)]
    updates = _updates([model.weights for model in models], [own.state.model.weights for own in fixed])
    uploads: list[Upload] = []
    memories: list[Slots] = []
    for job, end, model, own, delta in zip(jobs, ends, models, fixed, updates, strict=True):
        steps = len(job.plan.rows)
        effective = effective_steps_of(steps, job.momentum)
        done = Trained(end.model, steps, effective)
        slots, memory = job.local.finish(done, context_of(end.model.weights, {}, own, own.steps))
        if job.local.keeps_optimizer:
            memory = memory | end.optimizer
        if job.private:
            memory = memory | {PRIVATE: private_part(end.model, job.private)}
        uploads.append(Upload(delta, model.buffers, slots, steps, effective, job.lr))
        memories.append(memory)
    results = zip(uploads, _with_own_storage(memories, ends), losses, gammas, strict=True)
    return [JobResult(*result) for result in results]


def _with_own_storage(memories: list[Slots], ends: Sequence[Carry]) -> list[Slots]:
    """Copy what parties remember of their last steps: one row would keep those of all parties in memory."""
    remembered = [leaf for memory in memories for leaf in leaves(memory) if base_of(leaf) is not None]
    shared = {id(base_of(leaf)) for end in ends for leaf in leaves(end)} if remembered else set[int]()
    rows = [leaf for leaf in remembered if id(base_of(leaf)) in shared]
    if not rows:
        return memories
    own = dict(zip(map(id, rows), copied(rows), strict=True))
    return [fill_tree(memory, [own.get(id(leaf), leaf) for leaf in leaves(memory)]) for memory in memories]


def _updates(trained: Sequence[Tensors], received: Sequence[Tensors]) -> list[Tensors]:
    """Subtract from the weights of each party those that it received: by name, for all parties at once."""
    updates: Tensors = {}
    for k in trained[0]:
        before = [weights[k] for weights in received]
        shared = all(other is before[0] for other in before)
        after = stack_rows([weights[k] for weights in trained])
        updates[k] = after - (before[0] if shared else stack_rows(before))
    return rows_of(updates, len(trained))


def effective_steps_of(steps: int, momentum: float) -> float:
    """Sum the coefficients with which our SGD applies its gradients: the effective steps a_i."""
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
