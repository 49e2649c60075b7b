"""The statistics of the tables, against numbers that stand in any book."""

import math

import pytest

from moonfed.experiments.statistics import deviation, incomplete_beta, interval, last_ten, paired, rounds_to, t_quantile


@pytest.mark.parametrize(
    ("p", "freedom", "value"),
    [
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
def test_quantiles_of_t_are_those_of_the_printed_tables(p, freedom, value):
    assert t_quantile(p, freedom) == pytest.approx(value, abs=6e-6 * max(1, abs(value)))


def test_the_incomplete_beta_function_has_its_closed_forms():
    for x in (0.0, 0.1, 0.5, 0.9, 1.0):
        assert incomplete_beta(x, 1, 1) == pytest.approx(x)
        assert incomplete_beta(x, 2, 1) == pytest.approx(x**2)
        assert incomplete_beta(x, 1, 3) == pytest.approx(1 - (1 - x) ** 3)
        assert incomplete_beta(x, 2.5, 0.5) == pytest.approx(1 - incomplete_beta(1 - x, 0.5, 2.5))


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


def test_the_last_ten_rounds_are_rounds_not_evaluations():
    rows = [{"round": n, "accuracy": n / 100 if n % 4 == 0 else None} for n in range(1, 21)]
    assert last_ten(rows) == pytest.approx((0.12 + 0.16 + 0.20) / 3)
    assert last_ten(rows[:3]) is None
    assert rounds_to(rows, 0.12) == 12
    assert rounds_to(rows, 0.13) == 16
    assert rounds_to(rows, 0.5) is None


def test_the_quantile_is_the_closed_form_where_there_is_one():
    assert t_quantile(0.975, 1) == pytest.approx(math.tan(0.475 * math.pi))
    assert t_quantile(0.975, 2) == pytest.approx(0.95 * math.sqrt(2 / (1 - 0.95**2)))
