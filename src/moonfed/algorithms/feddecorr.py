"""FedDecorr (Shi et al. 2023): keep the dimensions of a representation from becoming copies of each other.

Loss = CE + beta (1/B) mean over j != k of R_jk^2, R = X^T X of the batch's representations X, each dimension
centred and divided by its standard deviation. That is the authors' code; the paper's mean of squared
correlations, (1/d^2) ||corr||_F^2, is smaller by (B - 1)^2 / B d / (d - 1) (62 at B = 64, d = 256).
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from moonfed.core.algorithm import Preset
from moonfed.core.rules import LocalRule, setting
from moonfed.core.types import Outputs, StepContext, Tensors


@dataclass(frozen=True)
class FedDecorrLocal(LocalRule):
    """Cross-entropy plus beta times the mean squared correlation of the representation's dimensions."""

    beta: float = setting(0.1, "weight of the decorrelation", ge=0)

    def loss(self, out: Outputs, y: Tensor, ctx: StepContext) -> Tensors:
        return {"supervised": cross_entropy(out.logits, y), "decorrelation": self.beta * correlation(out.projection)}


def correlation(x: Tensor) -> Tensor:
    """Return the mean off-diagonal square of X^T X over B, X standardised; 0 for one row or one dimension."""
    rows, width = x.shape
    if rows < 2 or width < 2:
        return x.sum() * 0
    centred = x - x.mean(0)
    scaled = centred / torch.sqrt(centred.square().sum(0) / (rows - 1) + 1e-8)
    products = scaled.T @ scaled
    off_diagonal = products.square().sum() - products.diagonal().square().sum()
    return off_diagonal / (width * (width - 1) * rows)


PRESET = Preset("feddecorr", FedDecorrLocal)
