"""Anchors give the same outputs whether they are computed in pieces, in bulk or looked up."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from worlds import context_for, gap, run_with, settings, some_digits, trained

from moonfed.core.tree import tree_map
from moonfed.engines import EngineOptions
from moonfed.engines.stacked import anchors, lanes
from moonfed.engines.stacked.anchors import (
    MAX_PIECE_ROWS,
    PIECE_ROWS_STEP,
    AnchorCache,
    even_length,
    forward_anchors,
    forward_anchors_in_pieces,
    piece_sizes,
)
from moonfed.engines.stacked.stack_spec import StackSpec
from moonfed.engines.stacked.stacked_engine import Stacked
from moonfed.engines.stacked.stacked_ops import CPU_LAYOUT, StackedOps
from moonfed.training.resolve import resolve
from moonfed.training.trial import new_trial


def test_looked_up_anchor_outputs_equal_computed_ones(float64):
    config = settings("moon", train__rounds=2, train__epochs=3)
    still = some_digits()
    moving = replace(still, augmentation=still.augmentation._replace(pad=1, flip=True))
    for data in (still, moving):
        (one,), _ = trained(config, "sequential", data)
        two = run_with(config, lambda nets, data: Stacked(nets, data, EngineOptions()), data)
        assert gap(one.state, two.state) < 1e-10


@pytest.mark.parametrize(("length", "lanes"), [(7, 1), (7, 3), (16, 4), (40, 8)])
def test_an_anchor_output_does_not_depend_on_the_rows_beside_it(float64, length, lanes):
    config = settings("moon", model__model="cnn")
    bench = context_for(config)
    trial = new_trial(resolve(config, bench.data), bench)
    start = trial.state.model
    of_parties = [{k: tree_map(lambda t, s=s: t * s, start) for k, s in (("a", 1 + i), ("b", 2 - i))} for i in range(3)]
    rows = [torch.arange(5, 5 + n) for n in (16, 39, 3)]
    spec = StackSpec(bench.nets, bench.data, trial.algorithm.local, StackedOps(CPU_LAYOUT))
    outputs = forward_anchors_in_pieces(spec, of_parties, rows, length, lanes)
    for of_party, own, found in zip(of_parties, rows, outputs, strict=True):
        alone = tree_map(lambda t: t[:0], found)
        for row in own:
            (one,) = forward_anchors_in_pieces(spec, [of_party], [row[None]], 1, 1)
            alone = tree_map(lambda a, b: torch.cat([a, b]), alone, one)
        assert gap(found, alone) < 1e-12
        assert gap(found["a"], found["b"]) > 0.01, "the two anchors differ"


def test_anchors_run_once_over_every_row_of_a_party_and_their_outputs_are_released(monkeypatch):
    computed: list[int] = []
    caches: list[AnchorCache] = []

    class RecordingCache(AnchorCache):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            caches.append(self)

    def record(spec: Any, of_parties: Any, rows: Any) -> Any:
        computed.extend(map(len, rows))
        return forward_anchors(spec, of_parties, rows)

    monkeypatch.setattr(anchors, "forward_anchors", record)
    monkeypatch.setattr(lanes, "AnchorCache", RecordingCache)
    config = settings("moon", train__rounds=2, train__epochs=3, data__parties=5)
    run_with(config, lambda nets, data: Stacked(nets, data, EngineOptions(lanes=2)))
    assert any(cache.resumed_jobs for cache in caches), "a party that pauses during its round"
    assert sorted(computed) == sorted(len(own) for cache in caches for own in cache.rows)
    assert all(not cache.outputs for cache in caches)


@pytest.mark.parametrize("count", [1, 2, 16, 333, 334, 335, 1000])
def test_pieces_of_a_party_are_few_and_even(count):
    length = even_length(count, 334)
    pieces = torch.arange(count).split(length)
    assert length <= 334
    assert len(pieces) == -(-count // 334)
    assert len(pieces) * length - count < len(pieces)


@pytest.mark.parametrize(
    ("rows", "widest", "weights"), [(7, 10, 10), (5000, 4704, 92_626), (5000, 2**20, 2**24), (1, 1, 2**30)]
)
def test_pieces_that_run_lanes_stay_within_their_limit(rows, widest, weights):
    limit = 2**27
    length, lanes = piece_sizes(rows, limit, widest, weights)
    assert 1 <= length <= MAX_PIECE_ROWS
    assert length < rows + PIECE_ROWS_STEP
    assert lanes == 1 or lanes * weights <= limit
    assert (length, lanes) == (16, 1) or length * lanes * widest <= limit or length <= 16
    assert lanes == 1 or (lanes + 1) * max(weights, length * widest) > limit, "as many as fit"
