"""What a comparison says of its methods."""

import pytest

from moonfed.report.summary import Summary, paired_difference


def test_a_difference_is_the_first_method_minus_the_second_over_the_seeds_that_both_have():
    one = Summary("moon", [0, 1, 2], [0.7, 0.8, 0.9], [], 1.0, 1.0)
    other = Summary("fedavg", [2, 1], [0.5, 0.6], [], 1.0, 1.0)
    assert paired_difference(one, other) == pytest.approx(((0.8 - 0.6) + (0.9 - 0.5)) / 2)
    assert paired_difference(other, one) == pytest.approx(-0.3)
    assert one.std == pytest.approx(0.1)
