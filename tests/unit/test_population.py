"""Populations: rows by party are made when asked for, so that nothing costs more because there are more parties."""

import json

import numpy as np
import pytest
from commands import moonfed
from worlds import gap, ready, run, run_one, settings, some_digits

from moonfed.core.errors import UserError
from moonfed.core.types import PartyInfo
from moonfed.data.partition import Split, partition
from moonfed.data.population import IndexedRows, PartyInfos, VirtualRows, totals_of
from moonfed.federation.protocol.eligibility import check_federable
from moonfed.training.config import make_config
from moonfed.training.party_rows import divide_data
from moonfed.training.resolve import resolve
from moonfed.training.setup import load_data
from moonfed.training.split_summary import describe_split

LABELS = np.repeat(np.arange(10), [50, 100, 150, 50, 100, 150, 50, 100, 150, 100])
POOL = np.arange(len(LABELS))


def virtual(parties=1000, size=200, beta: float | None = 0.5, seed=0):
    return VirtualRows(POOL, LABELS, 10, parties, size, beta, seed)


def population(parties, name="moon", **changes):
    """Settings of a virtual population with three parties per round."""
    return settings(
        name,
        data__parties=parties,
        data__population=f"virtual:{parties}",
        data__rows_per_party=16,
        data__floor=10,
        cohort__fraction=3 / parties,
        **changes,
    )


def test_rows_of_parties_are_those_of_the_split():
    parts = partition("dirichlet", LABELS, Split(7, 0.3, 2, 5, 0))
    rows = IndexedRows(parts, LABELS, 10)
    assert [part.tolist() for part in rows] == [part.tolist() for part in parts]
    assert rows[-1].tolist() == parts[-1].tolist()
    assert [len(part) for part in rows[2:4]] == [len(part) for part in parts[2:4]]
    with pytest.raises(IndexError):
        rows[7]
    infos = PartyInfos(rows)
    counted = [PartyInfo(i, len(p), tuple(np.bincount(LABELS[p], minlength=10).tolist())) for i, p in enumerate(parts)]
    assert list(infos) == counted
    for totals in (totals_of(infos), totals_of(counted)):
        assert totals.rows == len(LABELS)
        assert totals.sizes.tolist() == [len(p) for p in parts]
        assert infos[totals.smallest].rows == min(len(p) for p in parts)
        assert totals.class_shares == pytest.approx(np.bincount(LABELS) / len(LABELS))


def test_a_virtual_party_has_the_same_rows_whoever_else_there_is_and_whenever_it_is_asked():
    few, many = virtual(10), virtual(1_000_000)
    assert few[7].tolist() == many[7].tolist() == many[7].tolist()
    assert many[7].tolist() != many[8].tolist()
    assert many[7].tolist() != virtual(10, seed=1)[7].tolist()
    assert len(many[999_999]) == 200


def test_virtual_parties_draw_with_replacement_by_class_shares_of_their_own():
    """Their mean is that of the pool whatever beta is; the smaller beta, the fewer classes a party has."""
    shares = np.bincount(LABELS) / len(LABELS)
    present = []
    for beta in (0.05, 0.5, 50.0, None):
        counts = np.array([info.class_counts for info in PartyInfos(virtual(2000, 50, beta))])
        assert counts.sum(1).tolist() == [50] * 2000
        assert counts.sum(0) / counts.sum() == pytest.approx(shares, abs=0.02)
        present.append((counts > 0).sum(1).mean())
    assert present == sorted(present)
    assert present[0] < 3 < 9 < present[-1]
    assert len(set(virtual(1, 700, None)[0].tolist())) < 700, "with replacement"
    single = np.array([info.class_counts for info in PartyInfos(virtual(200, 50, 1e-300))])
    assert ((single > 0).sum(1) == 1).all(), "the limit of beta is one class per party"


def test_without_beta_every_row_is_as_likely():
    times = np.bincount(np.concatenate(list(virtual(1000, 100, None))), minlength=len(LABELS))
    assert times.mean() == pytest.approx(100)
    assert 5 < times.std() < 15, "Poisson's would be 10"


def test_rows_set_aside_are_those_of_no_virtual_party():
    config = population(50, "fedavg", data__validation=0.25, train__patience=3, data__monitor=0.1)
    data = some_digits()
    training, (validation,), (monitor,) = divide_data(resolve(config, data), data)
    drawn = set(np.concatenate(list(training)).tolist())
    assert not drawn & {*validation.tolist(), *monitor.tolist()}
    assert len(validation) == 40
    assert sorted([*training.all_rows.tolist(), *validation.tolist(), *monitor.tolist()]) == list(range(160))


def test_only_the_parties_of_a_cohort_are_made(monkeypatch):
    """From the first setting to the final evaluation of two rounds."""
    made: set[int] = set()
    draw = VirtualRows._draw
    monkeypatch.setattr(VirtualRows, "_draw", lambda self, party: made.add(party) or draw(self, party))
    trial = run_one(population(1_000_000, train__rounds=2))
    cohorts = {who.party for round in range(2) for who in trial.spec.cohorts.cohort(round)}
    assert made <= cohorts | {0}, "party 0 stands for the smallest: all have as many rows"
    assert len(cohorts) == 6


def test_a_record_is_as_long_whatever_the_population():
    lengths = []
    for parties in (1500, 900_000):
        _, ((first, *_),) = run(ready(population(parties, train__rounds=1))[1], ready(population(parties))[0])
        assert "accuracy_at_party" not in first
        lengths.append(len(json.dumps({k: v for k, v in first.items() if k not in ("seconds", "cohort")})))
    assert abs(lengths[0] - lengths[1]) < 60, "the digits of numbers"
    _, ((few, *_),) = run(ready(settings("moon", train__rounds=1))[1], ready(settings("moon"))[0])
    assert len(few["accuracy_at_party"]) == 4


@pytest.mark.parametrize("name", ["moon", "scaffold", "feddyn"])
def test_engines_agree_on_a_virtual_population(name, float64):
    config = population(5000, name, train__rounds=3)
    one, two = (run_one(config, engine).state.model for engine in ("sequential", "stacked"))
    assert gap(one, two) < 1e-9


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"population": "virtual:0"}, "population needs another form"),
        ({"population": "natural"}, "population needs another form"),
        ({"rows_per_party": 9}, "--rows-per-party is for --population virtual:N"),
        ({"population": "virtual:9", "parties": 8}, "has 9 parties, got --parties 8; omit one"),
        ({"population": "virtual:9", "partition": "shards"}, "by dirichlet or iid; got --partition shards"),
        ({"population": "virtual:9", "beta": 0}, "needs --beta > 0, got 0"),
        ({"population": "virtual:9", "floor": 3}, "--floor is for splits of the rows, --population virtual:9 draws"),
        ({"population": "virtual:9", "classes_per_party": 3}, "omit --classes-per-party"),
        ({"population": "virtual:2000000"}, "at most 1000000 parties, got virtual:2000000"),
    ],
)
def test_settings_of_a_population_that_mean_nothing_are_refused(values, why):
    with pytest.raises(UserError, match=why):
        make_config({"data": values})


@pytest.mark.parametrize("name", ["ditto", "fedper", "solo", "gossip", "fedavg+gossip"])
def test_a_model_for_each_party_of_a_large_population_is_refused(name):
    small, large = ({"data": {"population": f"virtual:{n}"}, "algorithm": {"name": name}} for n in (1000, 1001))
    assert make_config(small).data.parties == 1000
    with pytest.raises(UserError, match="trains a model for each party, so --population takes at most 1000 parties"):
        make_config(large)


def test_an_even_population_needs_no_beta():
    assert make_config({"data": {"population": "virtual:9", "partition": "iid", "beta": 0}}).data.parties == 9


def test_rows_that_are_drawn_twice_do_not_change_a_tables_weight_decay_nor_the_pooled_baseline(place):
    lines = ["a,b,y", *(f"{i % 7},{i % 5},{i % 2}" for i in range(400))]
    (place / "table.csv").write_text("\n".join(lines))
    for name in ("moon", "centralised"):
        decays = [
            resolve(config, load_data(config.data)).train.weight_decay
            for more in ({}, {"population": "virtual:50000"})
            for config in [
                make_config({"data": {"path": "table.csv", "label": "y"} | more, "algorithm": {"name": name}})
            ]
        ]
        assert decays[0] == decays[1] > 1e-5


def test_a_population_is_refused_between_sites_and_a_batch_that_no_party_fills():
    for values, why in (
        ({"data": {"population": "virtual:9"}}, "--population virtual:9 simulates parties, a federation has sites"),
        ({"run": {"checkpoint_every": 2}}, "--checkpoint-every 2 leaves rounds to be repeated"),
    ):
        with pytest.raises(UserError, match=why):
            check_federable(make_config(values))
    small = make_config({"data": {"population": "virtual:9", "rows_per_party": 8}, "train": {"batch": 16}})
    with pytest.raises(UserError, match="fewer than a batch of 16; use --batch 8 or smaller, or --rows-per-party 16"):
        ready(small)
    assert resolve(small.model_copy(update={"train": make_config({}).train}), some_digits()).train.batch == 8


def test_runs_without_a_population_keep_their_identity():
    plain = make_config({})
    assert plain.identity == make_config({"data": {"rows_per_party": 64}}).identity
    assert plain.identity != make_config({"data": {"population": "virtual:10"}}).identity
    assert make_config({"data": {"population": "virtual:10"}}).data.parties == 10


def test_a_split_of_many_parties_lists_the_first():
    split = describe_split(make_config({"data": {"population": "virtual:50000"}}), some_digits())
    assert (split["parties"], split["rows"], split["mean"], split["std"]) == (50_000, 3_200_000, 64.0, 0.0)
    assert (split["smallest"], split["largest"]) == (64, 64)
    assert len(split["sizes"]) == len(split["class_counts"]) == 1000


def test_a_large_population_runs_and_resumes_by_command(tmp_path):
    words = ["--population", "virtual:200000", "--fraction", "0.00002", "--epochs", "1", "--json"]
    out = ["--algorithm", "moon", "--model", "mlp", "--rows-per-party", "16", "--out", str(tmp_path / "run")]
    first = moonfed("run", *words, *out, "--rounds", "2")
    assert first.code == 0, first.err
    again = moonfed("run", *words, *out, "--rounds", "3", "--resume")
    assert again.code == 0, again.err
    assert len(json.loads(again.out)["last"]["cohort"]) == 4
    whole = moonfed("run", *words, *out[:-1], str(tmp_path / "whole"), "--rounds", "3")
    assert json.loads(whole.out)["accuracy"] == json.loads(again.out)["accuracy"]
    listed = moonfed("partition", "--population", "virtual:200000")
    assert "the first 1,000 of 200,000 parties" in " ".join(listed.out.split())
