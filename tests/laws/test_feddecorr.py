"""FedDecorr: the squared correlation of a batch's projections, by hand and against torch.corrcoef."""

import pytest
import torch
from worlds import step_context

from moonfed.algorithms.feddecorr import FedDecorrLocal, correlation
from moonfed.core.types import Outputs


def test_two_equal_dimensions_correlate_fully_and_scale_and_shift_do_not_matter():
    x = torch.randn(8, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    twice = torch.cat([x, x], 1)
    assert float(correlation(twice)) == pytest.approx(7**2 / 8, rel=1e-6)
    assert float(correlation(twice * torch.tensor([3.0, -0.5]) + 4)) == pytest.approx(7**2 / 8, rel=1e-6)
    assert float(correlation(x[:1].expand(1, 2))) == 0.0, "one row has no correlation"
    narrow = x[:, :1].clone().requires_grad_()
    assert float(correlation(narrow).detach()) == 0.0, "one dimension has none either"
    assert torch.autograd.grad(correlation(narrow), narrow)[0].abs().sum() == 0.0


def test_a_dimension_that_is_the_same_in_every_row_correlates_with_nothing():
    x = torch.randn(8, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    dead = torch.cat([x, torch.full((8, 1), 3.0)], 1).requires_grad_()
    value = correlation(dead)
    assert float(value.detach()) == pytest.approx(float(correlation(x)) / 3, rel=1e-6), "two of six pairs are left"
    assert torch.isfinite(torch.autograd.grad(value, dead)[0]).all()


def test_decorrelation_is_the_mean_squared_correlation_of_projections_times_rows():
    """(B - 1)^2 / B times the mean over pairs, for 9 rows; scale and shift of each dimension do not matter."""
    rng = torch.Generator().manual_seed(2)
    features, z = torch.randn(2, 9, 4, generator=rng, dtype=torch.float64)
    pairs = torch.corrcoef(z.T).square()[~torch.eye(4, dtype=torch.bool)]
    out = Outputs(features, z * torch.tensor([3.0, -0.5, 20.0, 1.0]) - 7, features)
    ctx = step_context({"w": z[0, 0]}, class_counts=(1,) * 4)
    found = FedDecorrLocal(beta=0.3).loss(out, torch.zeros(9, dtype=torch.int64), ctx)["decorrelation"]
    assert float(found) == pytest.approx(0.3 * 8**2 / 9 * float(pairs.mean()), rel=1e-6)
    printed = float(pairs.sum()) / 4**2  # the paper's mean over d x d entries
    assert float(found) == pytest.approx(0.3 * 8**2 / 9 * 4 / 3 * printed, rel=1e-6)


def test_the_authors_code_is_62_times_the_papers_term_at_64_rows_and_256_dimensions():
    z = torch.randn(64, 256, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    pairs = torch.corrcoef(z.T).square()
    paper = (float(pairs.sum()) - float(pairs.diagonal().sum())) / 256**2  # (1 / d^2) ||corr||_F^2 off the diagonal
    assert float(correlation(z)) / paper == pytest.approx(62.26, abs=0.01)
