"""Statistics and the definition of accuracy, against published tables and closed forms."""

import math

import numpy as np
import pytest

from moonfed.experiments.statistics import (
    Interval,
    accuracy_interval,
    deviation,
    interval,
    no_interval,
    paired,
    rounds_to,
    side,
    t_quantile,
    unit_means,
    verdict,
)
from moonfed.papers.verdict import judge
from moonfed.training.accuracy import accuracy, accuracy_window, final_accuracy, rounds_averaged


@pytest.mark.parametrize(
    ("p", "freedom", "value"),
    [  # Abramowitz and Stegun, table 26.10, and the NIST handbook, 1.3.6.7.2
        (0.975, 1, 12.7062),
        (0.975, 2, 4.30265),
        (0.975, 4, 2.77645),
        (0.975, 9, 2.26216),
        (0.975, 30, 2.04227),
        (0.95, 5, 2.01505),
        (0.995, 3, 5.84091),
        (0.025, 2, -4.30265),
        (0.5, 7, 0.0),
    ],
)
def test_quantiles_of_t_are_those_of_the_published_tables(p, freedom, value):
    assert t_quantile(p, freedom) == pytest.approx(value, abs=6e-6 * max(1, abs(value)))


@pytest.mark.parametrize("p", [0.025, 0.6, 0.95, 0.975, 0.995])
def test_quantiles_have_their_closed_forms_to_twelve_digits(p):
    a = 4 * p * (1 - p)
    four = 2 * math.sqrt(math.cos(math.acos(math.sqrt(a)) / 3) / math.sqrt(a) - 1) * math.copysign(1, p - 0.5)
    assert t_quantile(p, 1) == pytest.approx(math.tan(math.pi * (p - 0.5)), rel=1e-12)
    assert t_quantile(p, 2) == pytest.approx((2 * p - 1) * math.sqrt(2 / a), rel=1e-12)
    assert t_quantile(p, 4) == pytest.approx(four, rel=1e-12)


@pytest.mark.parametrize(
    ("freedom", "value"),
    [  # values of the hand-written bisection that scipy replaced
        (1, 12.706204736174687),
        (2, 4.302652729749461),
        (4, 2.776445105197794),
        (9, 2.2621571627982036),
        (14, 2.1447866879178017),
        (30, 2.0422724563012347),
    ],
)
def test_intervals_are_the_ones_of_earlier_versions(freedom, value):
    assert t_quantile(0.975, freedom) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(("p", "freedom"), [(0.0, 3), (1.0, 3), (0.5, 0)])
def test_a_quantile_outside_the_range_is_rejected(p, freedom):
    with pytest.raises(ValueError, match="t_quantile needs"):
        t_quantile(p, freedom)


def test_an_interval_is_the_mean_and_t_times_the_standard_error():
    found = interval([1.0, 2.0, 3.0])
    assert found.mean == 2
    assert found.n == 3
    assert found.low == pytest.approx(2 - 4.30265 / 3**0.5, abs=1e-5)
    assert found.high == pytest.approx(2 + 4.30265 / 3**0.5, abs=1e-5)
    assert interval([5.0]) == (5.0, None, None, 1)
    assert deviation([1.0, 2.0, 3.0]) == 1
    assert deviation([1.0]) is None


def test_differences_are_paired_by_seed():
    one, other = {(0, 0): 0.7, (0, 1): 0.9, (0, 2): 0.1}, {(0, 1): 0.5, (0, 0): 0.6, (0, 7): 0.0}
    found = paired(one, other)
    assert found is not None
    assert found.mean == pytest.approx((0.1 + 0.4) / 2)
    assert found.n == 2
    assert paired(one, {(9, 9): 0.5}) is None


def test_a_difference_is_better_or_worse_only_if_its_interval_excludes_zero():
    assert verdict(Interval(0.1, 0.01, 0.2, 5)) == "better"
    assert verdict(Interval(-0.1, -0.2, -0.01, 5)) == "worse"
    assert verdict(Interval(0.1, -0.01, 0.2, 5)) == "statistically indistinguishable"
    assert verdict(Interval(0.1, 0.0, 0.2, 5)) == "statistically indistinguishable"
    assert verdict(Interval(0.1, None, None, 1)) == "one seed"


def random_accuracies(rng):
    """Accuracies of some seeds as they occur: near 0, near 1, anywhere; fractions of few rows; equal ones."""
    n, rows = int(rng.integers(1, 12)), int(rng.integers(1, 400))
    shape = rng.choice([0.05, 0.5, 1.0, 20.0], size=2)
    found = rng.beta(*shape, size=n)
    return [float(v) for v in (np.round(found * rows) / rows if rng.random() < 0.5 else found)]


def test_the_interval_of_accuracies_is_within_0_and_1_and_contains_their_mean():
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(5000):
        values = random_accuracies(rng)
        found, plain = accuracy_interval(values), interval(values)
        assert (found.mean, found.n) == (plain.mean, len(values))
        assert (found.low is None) == (found.high is None) == (len(values) < 3 or len(set(values)) == 1)
        seen.add((found.low is None, any(end is not None and not 0 <= end <= 1 for end in plain[1:3])))
        if found.low is not None and found.high is not None and plain.low is not None and plain.high is not None:
            assert 0 <= found.low <= found.mean <= found.high <= 1
            assert found.low == max(0, plain.low)
            assert found.high == min(1, plain.high), "cut, and otherwise the t-interval"
    assert seen == {(True, False), (True, True), (False, False), (False, True)}, "every case has occurred"


def test_an_interval_of_a_mean_in_0_to_1_covers_it_as_often_when_cut():
    rng = np.random.default_rng(1)
    covered = {"cut": 0, "plain": 0}
    for _ in range(2000):
        values = [float(v) for v in rng.beta(9, 1, size=5)]
        for name, found in (("cut", accuracy_interval(values)), ("plain", interval(values))):
            covered[name] += found.low is not None and found.high is not None and found.low <= 0.9 <= found.high
    assert covered["cut"] == covered["plain"]


def test_figures_of_another_range_are_cut_at_their_own_top():
    assert accuracy_interval([0.5, 1.5, 1.9], math.inf).high == interval([0.5, 1.5, 1.9]).high
    assert accuracy_interval([0.5, 1.5, 1.9], 2.0)[1:3] == (0.0, 2.0)


def test_an_accuracy_without_an_interval_says_why():
    assert no_interval(accuracy_interval([0.9])) == "1 seed: no interval"
    assert no_interval(accuracy_interval([0.9, 0.8])) == "2 seeds: no interval"
    assert no_interval(accuracy_interval([1.0, 1.0, 1.0])) == "3 equal seeds: no interval"
    assert no_interval(accuracy_interval([0.0, 0.0])) == "2 seeds: no interval"
    assert no_interval(accuracy_interval([0.9, 0.8, 0.7])) is None
    assert no_interval(accuracy_interval([0.9, 0.8]), "split") == "2 splits: no interval"


def test_two_equal_differences_show_nothing_and_the_rule_of_the_papers_is_as_before():
    tenths = paired({0: 0.8, 1: 0.9}, {0: 0.7, 1: 0.8})
    assert tenths is not None
    assert tenths.low != tenths.high, "equal by count, not to the last bit"
    assert verdict(tenths) == "two equal differences"
    assert verdict(Interval(0.0, 0.0, 0.0, 2)) == "statistically indistinguishable"
    assert verdict(Interval(0.1, 0.1, 0.1, 3)) == side(tenths) == "better"
    assert judge(tenths, None) == "holds"


def rounds(*accuracies):
    return [{"round": n, "accuracy": a} for n, a in enumerate(accuracies, start=1)]


def test_accuracy_averages_the_last_quarter_of_the_rounds_at_least_one_and_at_most_ten():
    assert [rounds_averaged(n) for n in (0, 1, 3, 4, 7, 8, 20, 30, 40, 100, 500)] == [
        0,
        1,
        1,
        1,
        1,
        2,
        5,
        7,
        10,
        10,
        10,
    ]
    assert accuracy(rounds(*[0.9] * 90, *[0.5] * 9, 0.6)) == pytest.approx(0.51), "exactly ten of 100, never the best"
    assert accuracy(rounds(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.9)) == pytest.approx(0.8)
    assert accuracy(rounds(0.1, 0.2)) == 0.2


def test_only_evaluated_rounds_count():
    log = rounds(*[n / 100 if n % 4 == 0 else None for n in range(1, 33)])  # 8 evaluated
    assert accuracy(log) == pytest.approx((0.28 + 0.32) / 2)
    assert final_accuracy(log[:-1]) == 0.28
    assert accuracy(log[:3]) is None
    assert final_accuracy([]) is None
    assert rounds_to(log, 0.12) == 12
    assert rounds_to(log, 0.13) == 16
    assert rounds_to(log, 0.5) is None


def test_the_label_says_how_many_rounds_are_averaged():
    for evaluated, window in ((100, "mean of the last 10 rounds"), (8, "mean of the last 2 rounds"), (3, "last round")):
        assert accuracy_window([{"accuracy": 0.5}] * evaluated) == window


def test_with_units_pairs_are_formed_first_and_the_interval_is_over_the_means_of_units():
    one = {(0, 0): 0.9, (0, 1): 0.7, (1, 0): 0.6, (1, 1): 0.8, (2, 0): 0.5}
    other = {(0, 0): 0.8, (0, 1): 0.8, (1, 0): 0.5, (2, 0): 0.2, (3, 0): 0.1}
    found = paired(one, other, lambda key: key[0])
    assert found == pytest.approx(interval([0.0, 0.1, 0.3]))
    assert unit_means(one, lambda key: key[0]) == pytest.approx([0.8, 0.7, 0.5])
    assert unit_means(one, None) == list(one.values())
