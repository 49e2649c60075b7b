"""How the stacked engine executes its jobs changes nothing but its speed; what it cannot stack still trains."""

import logging
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from custom_networks import Branching, cohort_of, custom_nets
from torch import Tensor
from torch._C import _functorch  # pyright: ignore
from worlds import context_for, gap, run_one, run_with, same_bits, settings

from moonfed.core.errors import RunFailed
from moonfed.core.rules import LocalRule
from moonfed.core.types import Outputs, StepContext, Tensors
from moonfed.engines import EngineOptions
from moonfed.engines.stacked import graph_cache
from moonfed.engines.stacked.stacked_engine import Stacked, is_reusable, shape_of
from moonfed.models import EncoderSpec
from moonfed.training.registry import ALGORITHMS
from moonfed.training.resolve import resolve
from moonfed.training.runner import make_jobs
from moonfed.training.trial import new_trial

STACKED = [name for name, preset in ALGORITHMS.items() if not preset.pooled]  # one party alone is no stack


@pytest.mark.parametrize("lanes", [1, 2, 3])
@pytest.mark.parametrize("name", ["moon", "scaffold", "fednova", "solo", "fedrep", "fedsam", "ditto"])
def test_few_lanes_give_what_many_give_although_parties_pause_during_their_round(float64, name, lanes):
    config = settings(name, train__rounds=2, train__epochs=3, data__parties=5)
    few = run_with(config, lambda nets, data: Stacked(nets, data, EngineOptions(lanes=lanes)))
    alone = run_one(config)
    assert gap((few.state, few.memory), (alone.state, alone.memory)) < 1e-10


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [(name, "sgd") for name in (*STACKED, "fedntd+moon")] + [("moon", "adamw"), ("solo", "adamw")],
)
def test_a_traced_step_gives_the_same_bits(name, optimizer, monkeypatch):
    config = settings(name, model__model="cnn", train__rounds=2, train__epochs=4, train__optimizer=optimizer)
    engines = []

    def stacked(nets, data):
        engines.append(Stacked(nets, data, EngineOptions()))
        return engines[-1]

    plain = run_with(config, stacked)
    monkeypatch.setattr(graph_cache, "TRACE_AFTER_CALLS", 3)
    traced = run_with(config, stacked)
    assert not engines[0].graphs.graphs
    assert any(graph is not None for graph in engines[1].graphs.graphs.values())
    assert same_bits((plain.state, plain.memory), (traced.state, traced.memory))


IN_TURN = "parties train one after the other: the network or the rule branches on the values of tensors"


def test_a_net_that_cannot_be_vectorised_trains_its_parties_one_after_the_other_and_logs_it_once(caplog):
    caplog.set_level(logging.INFO, "moonfed")
    nets = custom_nets(Branching(EncoderSpec((1, 8, 8))))
    jobs, train = cohort_of(nets, EngineOptions())
    done = train()
    train()
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(IN_TURN)
    assert "\n" not in caplog.messages[0]
    assert [result.upload.steps for result in done] == [len(job.plan.rows) for job in jobs]
    assert all(float(result.upload.delta["head.weight"].abs().sum()) > 0 for result in done)


class Bug(Exception):
    """What neither torch nor the engine raises."""


@pytest.mark.parametrize("bug", [KeyError, TypeError, ValueError, AttributeError, AssertionError, Bug])
@pytest.mark.parametrize("only_vectorised", [False, True])
def test_a_bug_in_a_network_surfaces_as_itself(bug: type[Exception], only_vectorised: bool):
    class Faulty(Branching):
        def forward(self, x: Tensor) -> Tensor:
            out = self.layer(x.flatten(1))
            if broken and (not only_vectorised or _functorch.is_batchedtensor(out)):
                raise bug("a bug")
            return out

    broken = False
    _, train = cohort_of(custom_nets(Faulty(EncoderSpec((1, 8, 8)))), EngineOptions())
    broken = True
    with pytest.raises(bug, match="a bug"):
        train()


@dataclass(frozen=True)
class FaultyLoss(LocalRule):
    """A rule with a bug in its loss, from a step of the first round on."""

    bug: ClassVar[type[Exception]] = KeyError
    calls: ClassVar[int] = 0

    def loss(self, out: Outputs, y: Tensor, ctx: StepContext) -> Tensors:
        FaultyLoss.calls += 1
        if FaultyLoss.calls > 2:
            raise self.bug("a bug")
        return super().loss(out, y, ctx)


@pytest.mark.parametrize("bug", [KeyError, TypeError, RuntimeError])
@pytest.mark.parametrize("start", [-2, 0, 2])
def test_a_bug_in_a_rule_surfaces_as_itself(bug: type[Exception], start: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(FaultyLoss, "bug", bug)
    monkeypatch.setattr(FaultyLoss, "calls", start)
    context = context_for(settings("fedavg", data__parties=4), "stacked")
    trial = new_trial(resolve(settings("fedavg", data__parties=4), context.data), context)
    jobs = [replace(job, local=FaultyLoss()) for job in make_jobs(trial, context)]
    with pytest.raises(bug, match="a bug"):
        context.engine.run_cohort(jobs)


@pytest.mark.parametrize("bug", [KeyError, TypeError])
def test_a_bug_that_appears_while_a_step_is_traced_surfaces_as_itself(bug: type[Exception]):
    cache = graph_cache.GraphCache()

    def faulty(x: Tensor) -> Tensor:
        if cache.calls.total() > graph_cache.TRACE_AFTER_CALLS:
            raise bug("a bug")
        return x

    with pytest.raises(bug, match="a bug"):  # noqa: PT012 (whichever call it is)
        for _ in range(graph_cache.TRACE_AFTER_CALLS + 1):
            cache.run("faulty", faulty, (torch.ones(2),))


def test_a_function_that_reads_values_back_is_not_traced_and_gives_the_same(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "moonfed")
    cache = graph_cache.GraphCache()

    def branching(x: Tensor) -> Tensor:
        return x if bool(x.sum() > 0) else -x

    for _ in range(graph_cache.TRACE_AFTER_CALLS + 5):
        assert torch.equal(cache.run("branching", branching, (-torch.ones(2),)), torch.ones(2))
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("steps are not traced: ")


class Hungry(Branching):
    """An encoder that runs out of memory with more lanes than a limit."""

    max_lanes = 2

    def forward(self, x: Tensor) -> Tensor:
        out = self.layer(x.flatten(1))
        lanes = _functorch.get_unwrapped(out).shape[0] if _functorch.is_batchedtensor(out) else 1
        if lanes > self.max_lanes:
            raise torch.OutOfMemoryError(f"{lanes} lanes")
        return out


def test_out_of_memory_halves_the_stack_and_continues(caplog):
    caplog.set_level(logging.INFO, "moonfed")
    jobs, train = cohort_of(custom_nets(Hungry(EncoderSpec((1, 8, 8)))), EngineOptions())
    done = train()
    assert len(done) == len(jobs) == 4
    assert caplog.messages == ["out of memory: continuing with 2 lanes"]
    train()
    assert len(caplog.messages) == 1, "it remembers"


def test_one_party_too_large_for_memory_fails_with_advice_to_the_user():
    nets = custom_nets(Hungry(EncoderSpec((1, 8, 8))))
    _, train = cohort_of(nets, EngineOptions())
    for net in (nets.training, nets.inference):
        vars(net.encoder)["max_lanes"] = 0
    with pytest.raises(RunFailed, match="smaller --batch"):
        train()


def test_methods_that_change_the_server_alone_share_a_stack():
    shapes = set()
    for name in ("fedavg", "fedavgm", "fednova", "fedadam", "fedexp", "feddisco", "median", "fedavg+ccvr"):
        context = context_for(settings(name))
        trial = new_trial(resolve(settings(name), context.data), context)
        shapes.add(shape_of(make_jobs(trial, context)[0]))
    assert len(shapes) == 1


def test_a_stack_of_similar_width_is_reused():
    assert [width for width in range(1, 60) if is_reusable(width, 20)] == list(range(16, 41))
