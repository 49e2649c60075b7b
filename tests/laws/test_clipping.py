"""Gradient clipping equals torch's, on every engine, and changes no bit where it is off."""

import copy
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_
from worlds import context_for, gap, ready, same_bits, settings, some_digits

from moonfed.core.types import Snapshot
from moonfed.data.augment import gather
from moonfed.data.batches import BatchPlan
from moonfed.data.dataset import Dataset
from moonfed.engines import ENGINES, EngineOptions, Job
from moonfed.training.network import build
from moonfed.training.runner import make_jobs

CONFIG = settings("fedavg", train__epochs=2)


def jobs_with(engine: str, max_grad_norm: float) -> tuple[Dataset, torch.nn.Module, list[Job]]:
    """Return the jobs of a first round with a limit on the gradients' norm, their data and their network."""
    context, (trial,) = ready(CONFIG, engine, some_digits())
    jobs = [replace(job, max_grad_norm=max_grad_norm) for job in make_jobs(trial, context)]
    return context.data, build(trial.spec.network), jobs


def train_with_torch(model: torch.nn.Module, data: Dataset, job: Job) -> tuple[Snapshot, list[float]]:
    """Train a party with torch's own clipping and SGD; return its model and the norms before clipping."""
    net = copy.deepcopy(model).requires_grad_(True).train()
    net.load_state_dict(job.state.model.weights | job.state.model.buffers)
    optimizer = torch.optim.SGD(net.parameters(), job.lr, momentum=job.momentum, weight_decay=job.weight_decay)
    norms: list[float] = []
    for batch in zip(*job.plan, strict=True):
        x, y = gather(data, BatchPlan(*batch), next(net.parameters()).dtype)
        optimizer.zero_grad()
        cross_entropy(net(x).logits, y).backward()
        norms.append(float(clip_grad_norm_(net.parameters(), job.max_grad_norm)))
        optimizer.step()
    return Snapshot({k: v.detach() for k, v in net.named_parameters()}, dict(net.named_buffers())), norms


@pytest.mark.parametrize("engine", sorted(ENGINES))
@pytest.mark.parametrize("lanes", [0, 1])
def test_clipping_equals_torchs_clip_grad_norm_followed_by_sgd(float64, engine, lanes):
    limit = 0.6
    data, model, jobs = jobs_with(engine, limit)
    context = context_for(CONFIG, engine, data)
    results = ENGINES[engine](context.nets, data, EngineOptions(lanes=lanes)).run_cohort(jobs)
    norms: list[float] = []
    for job, result in zip(jobs, results, strict=True):
        expected, of_party = train_with_torch(model, data, job)
        norms += of_party
        ours = {k: v + job.state.model.weights[k] for k, v in result.upload.delta.items()}
        assert gap(ours, {k: expected.weights[k] for k in ours}) < 1e-12
    assert min(norms) < limit < max(norms), "some steps are clipped and some are not"


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_without_a_limit_no_gradient_is_scaled(engine):
    _, _, jobs = jobs_with(engine, 0.0)
    context = context_for(CONFIG, engine)
    off = context.engine.run_cohort(jobs)
    huge = context_for(CONFIG, engine).engine.run_cohort([replace(job, max_grad_norm=1e6) for job in jobs])
    for a, b in zip(off, huge, strict=True):
        assert same_bits(a.upload.delta, b.upload.delta), "a limit that is never reached multiplies by exactly 1"
        assert same_bits(a.losses, b.losses)
