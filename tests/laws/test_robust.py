"""Median and trimmed mean: what a minority of wild parties can and cannot do to the model."""

import math
import statistics
from itertools import permutations

import pytest
import torch
from worlds import context_for, gap, run_one, same_bits, settings, trained

from moonfed.aggregators.median import MedianAggregator
from moonfed.aggregators.trimmed_mean import TrimmedMeanAggregator
from moonfed.core.errors import UserError
from moonfed.core.rules import Aggregator, ServerOptimizer
from moonfed.core.tree import add, scale
from moonfed.core.types import PartyInfo, Population, ReceivedUpload, Snapshot, State, Upload
from moonfed.training.registry import check_options, make_algorithm
from moonfed.training.resolve import resolve
from moonfed.training.runner import make_jobs
from moonfed.training.trial import new_trial

ROBUST = {"median": MedianAggregator(), "trimmed-mean": TrimmedMeanAggregator(trim=0.2)}
NOBODY = Population(0, 0)


def state_of(weights, **buffers):
    return State(Snapshot({"w": torch.tensor(weights)}, {k: torch.tensor(v) for k, v in buffers.items()}), {}, {})


def upload_of(delta, **buffers):
    return Upload({"w": torch.tensor(delta)}, {k: torch.tensor(v) for k, v in buffers.items()}, {}, 1, 1.0)


def some_uploads(parties, seed=0, size=40):
    rng = torch.Generator().manual_seed(seed)
    return {
        party: Upload(
            {"w": torch.randn(size, generator=rng)},
            {"mean": torch.randn(3, generator=rng), "count": torch.randint(1, 900, (), generator=rng)},
            {},
            1,
            1.0,
        )
        for party in range(parties)
    }


def start(size=40):
    return State(Snapshot({"w": torch.zeros(size)}, {"mean": torch.zeros(3), "count": torch.tensor(0)}), {}, {})


def applied(state, update):
    """The state after an update, as FedAvg's server applies it."""
    return ServerOptimizer().step(state, update)


def received(uploads):
    return {party: ReceivedUpload(upload, 1.0, PartyInfo(party, 1, ())) for party, upload in uploads.items()}


def reduced(aggregator, state, uploads, population):
    return applied(state, aggregator.reduce(state, received(uploads), population))


def averaged(state, uploads, share):
    total = {}
    for party, upload in uploads.items():
        part = Aggregator().contribute(upload, PartyInfo(party, 1, ()), share)
        total = add(total, part) if total else part
    return applied(state, Aggregator().update(state, total, NOBODY))


def test_the_median_of_three_is_the_middle_entry_by_entry_and_of_four_the_mean_of_two():
    uploads = {0: upload_of([1.0, 9.0]), 1: upload_of([3.0, -2.0]), 2: upload_of([2.0, 5.0])}
    moved = reduced(MedianAggregator(), state_of([10.0, 10.0]), uploads, NOBODY)
    assert moved.model.weights["w"].tolist() == [12.0, 15.0]
    moved = reduced(MedianAggregator(), state_of([10.0, 10.0]), uploads | {3: upload_of([7.0, 6.0])}, NOBODY)
    assert moved.model.weights["w"].tolist() == [12.5, 15.5]


def test_the_trimmed_mean_cuts_the_share_it_was_told_at_each_end():
    values = [0.0, 1.0, 2.0, 4.0, 100.0]
    uploads = {party: upload_of([value]) for party, value in enumerate(values)}
    hundred = {party: upload_of([float(party**2)]) for party in range(100)}
    kept = [float(party**2) for party in range(7, 93)]  # 0.07 times 100 is a hair above 7 in floating point
    moved = reduced(TrimmedMeanAggregator(trim=0.07), state_of([0.0]), hundred, NOBODY)
    assert moved.model.weights["w"].item() == pytest.approx(statistics.fmean(kept))
    for trim, mean in ((0.0, 107 / 5), (0.1, 7 / 3), (0.2, 7 / 3), (0.21, 2.0), (0.49, 2.0)):
        moved = reduced(TrimmedMeanAggregator(trim=trim), state_of([0.0]), uploads, NOBODY)
        assert moved.model.weights["w"].item() == pytest.approx(mean), trim


@pytest.mark.parametrize("name", ROBUST)
@pytest.mark.parametrize("parties", [3, 5, 7])
def test_one_party_of_nonsense_leaves_every_entry_within_the_range_of_the_honest(name, parties):
    uploads = some_uploads(parties)
    for wild in range(parties):
        sent = dict(uploads)
        noise = some_uploads(1, seed=9)[0]
        sent[wild] = noise._replace(
            delta=scale(noise.delta, 1e9), buffers={k: v * 1_000 for k, v in noise.buffers.items()}
        )
        moved = reduced(ROBUST[name], start(), sent, NOBODY).model
        honest = [upload for party, upload in uploads.items() if party != wild]
        for got, key in ((moved.weights, "delta"), (moved.buffers, "buffers")):
            for entry, value in got.items():
                said = torch.stack([getattr(upload, key)[entry] for upload in honest])
                assert bool((value >= said.amin(0)).all()), entry
                assert bool((value <= said.amax(0)).all()), entry
        mean = averaged(start(), sent, 1.0).model.weights["w"]
        assert float(mean.abs().max()) > 1e6, "the average is carried away"


@pytest.mark.parametrize("parties", [5, 9])
def test_the_median_stands_as_long_as_the_wild_are_fewer_than_half(parties):
    uploads = some_uploads(parties)
    few = (parties - 1) // 2
    wild = {party: upload._replace(delta=scale(upload.delta, 1e9)) for party, upload in uploads.items() if party < few}
    moved = reduced(MedianAggregator(), start(), uploads | wild, NOBODY).model.weights["w"]
    said = torch.stack([uploads[party].delta["w"] for party in range(few, parties)])
    assert bool(((moved >= said.amin(0)) & (moved <= said.amax(0))).all())


@pytest.mark.parametrize("parties", [1, 2, 3, 6])
def test_a_trimmed_mean_that_cuts_nothing_is_fedavg_with_equal_shares(parties):
    uploads = some_uploads(parties)
    plain = averaged(start(), uploads, 1.0)
    assert gap(reduced(TrimmedMeanAggregator(trim=0.0), start(), uploads, NOBODY), plain) < 1e-6


@pytest.mark.parametrize("name", ROBUST)
def test_the_order_of_the_parties_does_not_change_a_bit(name):
    uploads = some_uploads(4)
    first = reduced(ROBUST[name], start(), uploads, NOBODY)
    for order in permutations(uploads):
        assert same_bits(first, reduced(ROBUST[name], start(), {party: uploads[party] for party in order}, NOBODY))
    renamed = {party: uploads[other] for party, other in enumerate((2, 0, 3, 1))}
    assert same_bits(first, reduced(ROBUST[name], start(), renamed, NOBODY))


@pytest.mark.parametrize("name", ROBUST)
@pytest.mark.parametrize("parties", [1, 2, 3, 6])
def test_parties_that_agree_give_what_fedavg_gives(name, parties):
    uploads = dict.fromkeys(range(parties), some_uploads(1)[0])
    assert gap(reduced(ROBUST[name], start(), uploads, NOBODY), averaged(start(), uploads, 1.0)) < 1e-6


def test_buffers_take_the_middle_too_and_counters_stay_whole():
    uploads = {i: upload_of([0.0], mean=[v], count=c) for i, (v, c) in enumerate([(2.0, 10), (4.0, 13), (1e9, 10**15)])}
    moved = reduced(MedianAggregator(), state_of([0.0], mean=[0.0], count=0), uploads, NOBODY).model.buffers
    assert (moved["mean"].tolist(), int(moved["count"])) == ([4.0], 13)
    even = {party: uploads[party] for party in (0, 1)}
    moved = reduced(MedianAggregator(), state_of([0.0], mean=[0.0], count=0), even, NOBODY).model.buffers
    assert moved["mean"].tolist() == [3.0]
    assert moved["count"].dtype == torch.int64
    assert int(moved["count"]) == 12


@pytest.mark.parametrize("server", ROBUST)
@pytest.mark.parametrize("name", ["fedavg", "fedprox", "moon", "moon-l2"])
def test_a_robust_server_stands_behind_every_local_rule_that_is_averaged(float64, name, server):
    config = settings(name, algorithm__server=server, model__norm="batch", train__rounds=1)
    (trial,), (rows,) = trained(config)
    bench = context_for(config)
    again = new_trial(resolve(config, bench.data), bench)
    done = [d.upload for d in bench.engine.run_cohort(make_jobs(again, bench))]
    key = next(iter(again.state.model.weights))
    by_hand = [
        statistics.median(values)  # of four parties the trimmed mean keeps the two in the middle, as the median does
        for values in zip(*(u.delta[key].flatten().tolist() for u in done), strict=True)
    ]
    expected = again.state.model.weights[key].flatten() + torch.tensor(by_hand)
    assert gap(trial.state.model.weights[key].flatten(), expected) < 1e-12
    whole = sum(v.numel() * v.element_size() for tree in (done[0].delta, done[0].buffers) for v in tree.values())
    assert rows[0]["bytes_up"] == 4 * whole


@pytest.mark.parametrize("server", ROBUST)
@pytest.mark.parametrize("name", ["scaffold", "scaffold-niid", "solo"])
def test_a_rule_whose_slots_must_be_summed_is_refused_at_the_door(name, server):
    with pytest.raises(UserError, match=rf"{name}\+{server} does not fit"):
        make_algorithm(name, server, check_options(name, server, {}))


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_a_whole_run_without_cut_is_fedavg_on_even_parties(float64, engine):
    even = {"data__partition": "iid", "train__rounds": 3}
    plain = run_one(settings("fedavg", **even), engine)
    other = run_one(settings("trimmed-mean", algorithm__trim=0.0, **even), engine)
    assert gap(plain.state.model, other.state.model) < 1e-12
    assert gap(plain.state.model, run_one(settings("median", **even), engine).state.model) > 1e-5


def test_a_trim_of_half_or_more_is_refused():
    for trim in (0.5, -0.1, math.nan):
        with pytest.raises(UserError, match=r"trim needs"):
            settings("fedavg", algorithm__server="trimmed-mean", algorithm__trim=trim)
