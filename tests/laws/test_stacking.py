"""How the stacked engine goes about its work changes nothing but its speed."""

import logging
from dataclasses import replace
from math import prod
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._C import _functorch  # pyright: ignore
from worlds import context_for, gap, run, run_one, same_bits, settings, some_digits, trained

from moonfed.core.errors import RunFailed
from moonfed.core.tree import tree_map
from moonfed.engines import EngineOptions, Nets, nets_of
from moonfed.engines.stacked import executor as passage
from moonfed.engines.stacked import graph_cache as traces
from moonfed.engines.stacked.lanes import PIECE, StackSpec, ask, ask_in_pieces, even, side_by_side
from moonfed.engines.stacked.layout import CPU, SideBySide
from moonfed.engines.stacked.stacked_engine import Stacked, serves
from moonfed.models import EncoderSpec, Model
from moonfed.models.model import Encoder
from moonfed.training.resolve import resolve
from moonfed.training.runner import make_jobs
from moonfed.training.trial import RunContext, new_trial


def run_with(config, engine, data=None):
    """Run a config to its end with an engine made from networks, data and options."""
    bench = context_for(config, "sequential", data)
    bench = bench._replace(engine=engine(bench.nets, bench.data))
    trial = new_trial(resolve(config, bench.data), bench)
    (after,), _ = run([trial], bench)
    assert after.failure is None
    return after


@pytest.mark.parametrize("lanes", [1, 2, 3])
@pytest.mark.parametrize("name", ["moon", "scaffold", "fednova", "solo"])
def test_few_lanes_give_what_many_give_though_parties_wait_in_the_middle_of_their_round(float64, name, lanes):
    config = settings(name, train__rounds=2, train__epochs=3, data__parties=5)
    few = run_with(config, lambda nets, data: Stacked(nets, data, EngineOptions(lanes=lanes)))
    alone = run_one(config)
    assert gap((few.state, few.memory), (alone.state, alone.memory)) < 1e-10


@pytest.mark.parametrize("name", ["moon", "scaffold", "fedavg"])
def test_a_step_written_down_gives_the_same_bits(name, monkeypatch):
    config = settings(name, model__model="cnn", train__rounds=2, train__epochs=4)
    engines = []

    def stacked(nets, data):
        engines.append(Stacked(nets, data, EngineOptions()))
        return engines[-1]

    plain = run_with(config, stacked)
    monkeypatch.setattr(traces, "AFTER", 3)
    written = run_with(config, stacked)
    assert not engines[0].traces.written
    assert any(found is not None for found in engines[1].traces.written.values())
    assert same_bits((plain.state, plain.memory), (written.state, written.memory))


class Undecided(Encoder):
    """An encoder that decides by its numbers what to do: vmap cannot know what to do for all lanes at once."""

    features = 8

    def __init__(self, spec: EncoderSpec) -> None:
        super().__init__(spec)
        self.layer = nn.Linear(prod(spec.shape), 8)

    def forward(self, x: Tensor) -> Tensor:
        out = self.layer(x.flatten(1))
        return out if bool(out.sum() > 0) else -out


def own_net(encoder: Encoder) -> Nets:
    return nets_of(Model(encoder, 10, 4))


def cohort_of(nets: Nets, options: EngineOptions, device: str = "cpu"):
    """The first cohort of a tiny MOON federation with an own network, trained by the stacked engine."""
    data = some_digits(device=device)
    nets = Nets(*(net.to(device) for net in nets))
    config = resolve(settings("moon", data__parties=4), data)
    bench = RunContext(data, nets, Stacked(nets, data, options))
    trial = new_trial(config, bench)
    model = {k: v.detach().clone() for k, v in nets.training.named_parameters()}
    trial = replace(trial, state=trial.state._replace(model=trial.state.model._replace(weights=model)))
    jobs = make_jobs(trial, bench)
    return jobs, lambda: bench.engine.run_cohort(jobs)


def test_a_net_that_cannot_be_stacked_trains_its_parties_in_turn_and_says_so_once(caplog):
    caplog.set_level(logging.INFO, "moonfed")
    nets = own_net(Undecided(EncoderSpec((1, 8, 8))))
    jobs, train = cohort_of(nets, EngineOptions())
    done = train()
    train()
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("parties train in turn: the network or the rule cannot be stacked")
    assert "\n" not in caplog.messages[0]
    assert [result.upload.steps for result in done] == [len(job.plan.rows) for job in jobs]
    assert all(float(result.upload.delta["head.weight"].abs().sum()) > 0 for result in done)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_net_that_cannot_be_captured_trains_on_a_gpu_one_operation_at_a_time(caplog):
    caplog.set_level(logging.INFO, "moonfed")
    jobs, train = cohort_of(own_net(Undecided(EncoderSpec((1, 8, 8)))), EngineOptions(), "cuda")
    assert len(train()) == len(jobs)
    train()
    assert [line.split(":")[0] for line in caplog.messages] == [
        "parties train in turn",
        "steps run one operation at a time",
    ]


class Broken(Undecided):
    """An encoder that fails whoever calls it."""

    def forward(self, x: Tensor) -> Tensor:
        raise ValueError("no such thing")


def test_a_net_that_fails_by_itself_is_no_matter_of_stacking():
    net = own_net(Undecided(EncoderSpec((1, 8, 8))))
    _, train = cohort_of(net, EngineOptions())
    for module in net:
        vars(module.encoder)["forward"] = Broken(EncoderSpec((1, 8, 8))).forward
    with pytest.raises(ValueError, match="no such thing"):
        train()


class Hungry(Undecided):
    """An encoder that runs out of memory whenever more than some lanes come at once."""

    most = 2

    def forward(self, x: Tensor) -> Tensor:
        out = self.layer(x.flatten(1))
        lanes = _functorch.get_unwrapped(out).shape[0] if _functorch.is_batchedtensor(out) else 1
        if lanes > self.most:
            raise torch.OutOfMemoryError(f"{lanes} lanes")
        return out


def test_out_of_memory_halves_the_stack_and_goes_on(caplog):
    caplog.set_level(logging.INFO, "moonfed")
    jobs, train = cohort_of(own_net(Hungry(EncoderSpec((1, 8, 8)))), EngineOptions())
    done = train()
    assert len(done) == len(jobs) == 4
    assert caplog.messages == ["out of memory: going on with 2 lanes"]
    train()
    assert len(caplog.messages) == 1, "it remembers"


def test_one_party_too_large_for_memory_fails_with_a_word_to_the_user():
    nets = own_net(Hungry(EncoderSpec((1, 8, 8))))
    _, train = cohort_of(nets, EngineOptions())
    for net in nets:
        vars(net.encoder)["most"] = 0
    with pytest.raises(RunFailed, match="smaller --batch"):
        train()


def test_what_anchors_say_is_looked_up_only_where_rows_do_not_change(float64):
    config = settings("moon", train__rounds=2, train__epochs=3)
    still = some_digits()
    moving = replace(still, recipe=still.recipe._replace(pad=1, flip=True))
    for data in (still, moving):
        (one,), _ = trained(config, "sequential", data)
        two = run_with(config, lambda nets, data: Stacked(nets, data, EngineOptions()), data)
        assert gap(one.state, two.state) < 1e-10


@pytest.mark.parametrize(("length", "at_once"), [(7, 1), (7, 3), (16, 4), (40, 8)])
def test_anchors_say_the_same_of_a_row_whoever_is_asked_beside_it(float64, length, at_once):
    config = settings("moon", model__model="cnn")
    bench = context_for(config)
    trial = new_trial(resolve(config, bench.data), bench)
    start = trial.state.model
    anchors = [{k: tree_map(lambda t, s=s: t * s, start) for k, s in (("a", 1 + i), ("b", 2 - i))} for i in range(3)]
    rows = [torch.arange(5, 5 + n) for n in (16, 39, 3)]
    work = StackSpec(bench.nets, bench.data, trial.algorithm.local, SideBySide(CPU), 1)
    said = ask_in_pieces(work, anchors, rows, length, at_once)
    for had, own, found in zip(anchors, rows, said, strict=True):
        alone = tree_map(lambda t: t[:0], found)
        for row in own:
            (one,) = ask_in_pieces(work, [had], [row[None]], 1, 1)
            alone = tree_map(lambda a, b: torch.cat([a, b]), alone, one)
        assert gap(found, alone) < 1e-12
        assert gap(found["a"], found["b"]) > 0.01, "each anchor speaks for itself"


def test_anchors_are_asked_once_of_every_row_of_a_party_and_what_they_said_is_let_go(monkeypatch):
    asked: list[int] = []
    made: list[passage.AnchorCache] = []

    class Noted(passage.AnchorCache):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            made.append(self)

    def noted(work: Any, anchors: Any, rows: Any) -> Any:
        asked.extend(map(len, rows))
        return ask(work, anchors, rows)

    monkeypatch.setattr(passage, "ask", noted)
    monkeypatch.setattr(passage, "AnchorCache", Noted)
    config = settings("moon", train__rounds=2, train__epochs=3, data__parties=5)
    run_with(config, lambda nets, data: Stacked(nets, data, EngineOptions(lanes=2)))
    assert any(answers.comes_back for answers in made), "a party that waits in the middle of its round"
    assert sorted(asked) == sorted(len(own) for answers in made for own in answers.rows)
    assert all(not answers.said for answers in made)


@pytest.mark.parametrize("count", [1, 2, 16, 333, 334, 335, 1000])
def test_pieces_of_a_party_are_few_and_even(count):
    length = even(count, 334)
    pieces = torch.arange(count).split(length)
    assert length <= 334
    assert len(pieces) == -(-count // 334)
    assert len(pieces) * length - count < len(pieces)


@pytest.mark.parametrize(
    ("rows", "widest", "weights"), [(7, 10, 10), (5000, 4704, 92_626), (5000, 2**20, 2**24), (1, 1, 2**30)]
)
def test_pieces_side_by_side_fill_no_more_than_their_room(rows, widest, weights):
    room = 2**27
    length, at_once = side_by_side(rows, room, widest, weights)
    assert 1 <= length <= min(rows, PIECE)
    assert at_once == 1 or at_once * weights <= room
    assert (length, at_once) == (16, 1) or length * at_once * widest <= room or length <= 16
    assert at_once == 1 or (at_once + 1) * max(weights, length * widest) > room, "as many as there is room for"


def test_a_stack_that_is_there_serves_where_little_is_lost_by_it():
    assert [had for had in range(1, 60) if serves(had, 20)] == list(range(16, 41))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("precision", "near"), [("fp32", 2e-3), ("tf32", 0.12), ("fp16", 0.12), ("bf16", 0.3)])
@pytest.mark.parametrize("name", ["moon", "scaffold"])
def test_a_compiled_stack_on_a_gpu_ends_where_the_sequential_engine_ends(name, precision, near):
    config = settings(name, model__model="cnn", train__rounds=2)
    here = run_one(config)
    options = EngineOptions(precision, compile=True)
    there = run_with(config, lambda nets, data: Stacked(nets, data, options), some_digits(device="cuda"))
    back = tree_map(lambda t: t.cpu(), there.state.model.weights)
    start = new_trial(resolve(config, some_digits()), context_for(config)).state.model.weights
    for name, end in here.state.model.weights.items():
        assert float((back[name] - end).norm() / (end - start[name]).norm()) < near, name
