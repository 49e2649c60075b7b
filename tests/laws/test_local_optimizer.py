"""Local optimisers: AdamW is torch's on every engine, reductions hold to the bit, and SGD-only methods refuse it."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_
from worlds import context_for, gap, ready, settings

from moonfed.core.types import Optim, Snapshot, as_tensor, as_tensors
from moonfed.data.augment import gather
from moonfed.data.batches import BatchPlan
from moonfed.data.dataset import Dataset
from moonfed.engines import ENGINES, EngineOptions, Job
from moonfed.engines.local_optimizer import OPTIMIZERS, AdamW
from moonfed.training.network import build
from moonfed.training.runner import make_jobs

LR, DECAY = 0.003, 0.1


def train_with_torch(model: torch.nn.Module, data: Dataset, job: Job) -> Snapshot:
    """Train a party with torch's own AdamW and, where it is asked for, torch's own clipping."""
    net = copy.deepcopy(model).requires_grad_(True).train()
    net.load_state_dict(job.state.model.weights | job.state.model.buffers)
    optimizer = torch.optim.AdamW(net.parameters(), job.lr, weight_decay=job.weight_decay)
    for batch in zip(*job.plan, strict=True):
        x, y = gather(data, BatchPlan(*batch), next(net.parameters()).dtype)
        optimizer.zero_grad()
        cross_entropy(net(x).logits, y).backward()
        if job.max_grad_norm:
            clip_grad_norm_(net.parameters(), job.max_grad_norm)
        optimizer.step()
    return Snapshot({k: v.detach() for k, v in net.named_parameters()}, dict(net.named_buffers()))


@pytest.mark.parametrize("engine", sorted(ENGINES))
@pytest.mark.parametrize("lanes", [0, 1])
@pytest.mark.parametrize("limit", [0.0, 0.6])
def test_a_round_of_adamw_is_torchs_with_and_without_clipping(float64: None, engine: str, lanes: int, limit: float):
    config = settings("fedavg", train__epochs=2, model__norm="batch")
    context, (trial,) = ready(config, engine)
    changes: dict[str, Any] = {"lr": LR, "weight_decay": DECAY, "max_grad_norm": limit, "optimizer": AdamW()}
    jobs = [replace(job, **changes) for job in make_jobs(trial, context)]
    data, model = context.data, build(trial.spec.network)
    results = ENGINES[engine](context.nets, data, EngineOptions(lanes=lanes)).run_cohort(jobs)
    for job, result in zip(jobs, results, strict=True):
        expected = train_with_torch(model, data, job)
        ours = {k: v + job.state.model.weights[k] for k, v in result.upload.delta.items()}
        assert gap(ours, {k: expected.weights[k] for k in ours}) < 1e-9
        assert gap(ours, job.state.model.weights) > LR


def test_many_steps_of_adamw_in_float32_are_torchs_to_rounding():
    """The corrections 1 - b^t lose no digits in float32, neither at the first step nor after thousands."""
    torch.manual_seed(0)
    weight = torch.randn(50)
    theirs = weight.clone().requires_grad_()
    optimizer = torch.optim.AdamW([theirs], LR, weight_decay=DECAY)
    ours, adamw = {"w": weight}, AdamW()
    state, optim = adamw.init(ours), Optim(*torch.tensor([LR, 0.0, DECAY, 0.0]))
    for _ in range(3000):
        grad = torch.randn(50) + 0.1 * weight
        theirs.grad = grad
        optimizer.step()
        ours, state = adamw.step(ours, {"w": grad}, state, optim)
        assert torch.allclose(ours["w"], theirs.detach(), rtol=1e-5, atol=2e-5)
    assert float(as_tensor(state, "updates")) == 3000
    second = optimizer.state[theirs]["exp_avg_sq"]
    assert torch.allclose(as_tensors(state, "second_moment")["w"], second, rtol=1e-5)


def test_the_state_of_an_optimiser_has_the_names_that_it_declares():
    weights = {"a": torch.ones(2), "b": torch.ones(3)}
    optim = Optim(*torch.full((4,), 0.5))
    for optimizer in OPTIMIZERS.values():
        state = optimizer.init(weights)
        assert tuple(state) == optimizer.slots
        after, later = optimizer.step(weights, weights, state, optim)
        assert tuple(later) == optimizer.slots
        assert list(after) == list(weights)
        assert hash(optimizer) == hash(copy.copy(optimizer)), "part of the key by which jobs share a stack"


def test_jobs_of_different_optimisers_share_a_call_but_no_stack(float64: None):
    config = settings("fedavg")
    context, (trial,) = ready(config, "stacked")
    plain = make_jobs(trial, context)
    both = [*plain, *(replace(job, optimizer=AdamW(), lr=LR) for job in plain)]
    alone = context_for(config).engine.run_cohort(both)
    for one, two in zip(alone, context.engine.run_cohort(both), strict=True):
        assert gap(one.upload.delta, two.upload.delta) < 1e-10
