"""Who takes part in a round."""

import collections
from dataclasses import replace

import numpy as np
import pytest
from worlds import context_for, gap, run_one, same_bits, settings, some_digits

from moonfed.core.seeds import generator
from moonfed.core.tree import add, scale
from moonfed.core.types import PartyInfo
from moonfed.data.dataset import Augmentation
from moonfed.training.cohort import Cohorts
from moonfed.training.resolve import resolve
from moonfed.training.runner import make_jobs
from moonfed.training.trial import new_trial


def cohorts(parties=100, rows=None, **changes):
    config = settings("fedavg", **{f"cohort__{k}": v for k, v in changes.items()})
    sizes = rows or [10] * parties
    infos = [PartyInfo(i, n, ()) for i, n in enumerate(sizes)]
    return Cohorts(resolve(config, some_digits()), infos)


def test_the_published_cohort_of_round_0_comes_out():
    published = [49, 97, 53, 5, 33, 65, 62, 51, 38, 61, 45, 74, 27, 64, 17, 36, 96, 12, 79, 32]
    assert [seat.party for seat in cohorts(fraction=0.2).cohort(0)] == sorted(published)


def test_rounds_can_be_asked_for_in_any_order():
    forth, back = cohorts(fraction=0.1), cohorts(fraction=0.1)
    later = [back.cohort(r) for r in (7, 3, 0)]
    assert [forth.cohort(r) for r in (0, 3, 7)] == later[::-1]


@pytest.mark.parametrize(("fraction", "m"), [(1.0, 100), (0.2, 20), (0.29, 29), (0.001, 1)])
def test_a_cohort_has_max_of_c_times_k_and_1_parties(fraction, m):
    assert len(cohorts(fraction=fraction).cohort(5)) == m


def test_by_rows_draws_parties_by_their_rows_and_counts_a_party_drawn_twice_twice():
    rows = [10, 30, 60]
    sampler = cohorts(3, rows, fraction=1.0, sampling="by-rows")
    drawn = collections.Counter()
    for round in range(2000):
        cohort = sampler.cohort(round)
        assert sum(seat.share for seat in cohort) == 3
        drawn.update({seat.party: seat.share for seat in cohort})
    shares = [drawn[i] / 6000 for i in range(3)]
    assert shares == pytest.approx([0.1, 0.3, 0.6], abs=0.02)


def test_by_rows_draws_what_numpys_choice_draws():
    rows = [1 + (i * 7919) % 83 for i in range(500)]
    for round in range(20):
        drawn = generator(0, "cohort", round).choice(500, size=50, replace=True, p=np.array(rows) / sum(rows))
        cohort = cohorts(500, rows, fraction=0.1, sampling="by-rows").cohort(round)
        assert {who.party: who.share for who in cohort} == collections.Counter(drawn.tolist())


def test_by_rows_averages_with_one_over_k(float64):
    config = settings("fedavg", cohort__sampling="by-rows", train__rounds=1, data__parties=4)
    trial = run_one(config)
    cohort = trial.spec.cohorts.cohort(0)
    assert {seat.share for seat in cohort} >= {2.0}, "the case should have a party that was drawn twice"
    mean = None
    for seat in cohort:
        solo = run_one(settings("fedavg", train__rounds=1, cohort__fraction=1.0))
        only = _trained_alone(solo, seat.party)
        mine = scale(only, seat.share / 4)
        mean = mine if mean is None else add(mean, mine)
    assert gap(mean, trial.state.model.weights) < 1e-12


def _trained_alone(trial, party):
    """The model of one party after one FedAvg round in which it is the only one."""
    bench = context_for(trial.config)
    init_model = new_trial(trial.config, bench)
    (done,) = bench.engine.run_cohort([make_jobs(init_model, bench)[party]])
    return add(init_model.state.model.weights, done.upload.delta)


def test_stragglers_get_part_of_their_work_done_or_are_dropped():
    kept = cohorts(10, stragglers=0.3, straggler_work="0.2-0.4").cohort(0)
    slow = [seat for seat in kept if seat.work < 1]
    assert (len(kept), len(slow)) == (10, 3)
    assert all(0.2 <= seat.work <= 0.4 for seat in slow)
    dropped = cohorts(10, stragglers=0.3, straggler_work="0.2-0.4", stragglers_keep=False).cohort(0)
    assert [seat.party for seat in dropped] == [seat.party for seat in kept if seat.work == 1]


def test_half_of_ten_epochs_is_five_epochs_to_the_bit():
    data = replace(some_digits(), augmentation=Augmentation(pad=1, flip=True))
    half = settings("moon", train__epochs=10, cohort__stragglers=1.0, cohort__straggler_work="0.5-0.5")
    five = settings("moon", train__epochs=5)
    assert same_bits(run_one(half, data=data).state, run_one(five, data=data).state)


def test_a_round_in_which_everyone_is_dropped_changes_nothing():
    config = settings("moon", cohort__stragglers=1.0, cohort__stragglers_keep=False, train__rounds=2)
    trial = run_one(config)
    assert trial.round == 2
    assert trial.memory == {}
    assert gap(trial.state.model, trial.spec.init_model("model")) == 0
