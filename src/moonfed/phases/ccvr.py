"""CCVR (Luo et al. 2021): retrain the output layer after training, on samples drawn from a Gaussian for each class.

With z the input of the output layer, the parties send for each class n = rows, s = sum z and Q = sum z z^T over their
training rows, in eval mode and without augmentation. Of the totals N, s, Q of a class: mu = s / N, Sigma = (Q - N mu
mu^T) / (N - 1). The paper's parties send means and covariances, with Q = sum_i ((n_i - 1) Sigma_i + n_i mu_i mu_i^T)
the same. M samples of N(mu, Sigma) are drawn for each class that has rows; SGD on cross-entropy moves the output layer
alone, from its trained weights. Samples are mu + g R, R the symmetric root of Sigma, eigenvalues below 0 clipped.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from moonfed.core.algorithm import Preset
from moonfed.core.phase import ClassMoments, Phase, triangle
from moonfed.core.rules import setting
from moonfed.core.tree import numbers
from moonfed.core.types import Snapshot, State, Tensors

WEIGHT, BIAS = "head.weight", "head.bias"
# Functions of torch that it leaves untyped.
eigh: Callable[[Tensor], tuple[Tensor, Tensor]] = torch.linalg.eigh  # pyright: ignore
split: Callable[[Tensor, list[int]], tuple[Tensor, ...]] = torch.split  # pyright: ignore


@dataclass(frozen=True)
class CCVRPhase(Phase):
    """Class moments in, the same model with a retrained output layer out."""

    query = ClassMoments()
    samples: int = setting(2000, "M, samples drawn per class; with prior rows, on average", ge=1, le=100_000)
    prior: str = setting("uniform", "classes of the samples: uniform, or by rows", choices=("uniform", "rows"))
    head_epochs: int = setting(10, "epochs over the samples; 0 leaves the model as it is", ge=0, le=10_000)
    head_batch: int = setting(256, "samples per step", ge=1, le=1_000_000)
    head_lr: float = setting(0.01, "learning rate of the output layer", gt=0)
    head_momentum: float = setting(0.9, "momentum of the output layer's SGD", ge=0, lt=1)

    def conclude(self, state: State, total: Tensors, rng: np.random.Generator) -> Snapshot:
        if not self.head_epochs:
            return state.model
        weights, counts = state.model.weights, self.class_samples(total["rows"])
        unit = weights[WEIGHT]
        mean, covariance = moments(total)
        z = draw(mean, covariance, counts, rng, unit.dtype)
        y = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts)).to(unit.device)
        order = [torch.as_tensor(rng.permutation(len(y))).to(unit.device) for _ in range(self.head_epochs)]
        head = torch.cat([unit, weights[BIAS][:, None]], 1)
        head = self.retrain(head, torch.cat([z, z.new_ones(len(z), 1)], 1), y, order)
        return state.model._replace(weights=weights | {WEIGHT: head[:, :-1].contiguous(), BIAS: head[:, -1].clone()})

    def class_samples(self, rows: Tensor) -> list[int]:
        """Return the number of samples of each class: none of a class that nobody has."""
        by_class = numbers(rows)
        mean = sum(by_class) / sum(n > 0 for n in by_class)
        shares = [n > 0 if self.prior == "uniform" else n / mean for n in by_class]
        return [max(1, round(self.samples * share)) if share else 0 for share in shares]

    def retrain(self, head: Tensor, z: Tensor, y: Tensor, order: list[Tensor]) -> Tensor:
        """Take SGD's steps on the mean cross-entropy of samples: head [class, z + 1], z [sample, z + 1].

        Its gradient is (softmax - one-hot)^T z, written out here: a step is a few small operations.
        """
        goal = torch.nn.functional.one_hot(y, len(head)).to(z.dtype)
        velocity = torch.zeros_like(head)
        for permutation in order:
            epoch_z, epoch_goal = z.index_select(0, permutation), goal.index_select(0, permutation)
            for first in range(0, len(y), self.head_batch):
                batch, truth = epoch_z[first : first + self.head_batch], epoch_goal[first : first + self.head_batch]
                error = torch.softmax(batch @ head.T, 1) - truth
                velocity = torch.addmm(velocity, error.T, batch, beta=self.head_momentum, alpha=1 / len(batch))
                head = head - self.head_lr * velocity
        return head


def moments(total: Tensors) -> tuple[Tensor, Tensor]:
    """Return the mean [class, z] and the unbiased covariance [class, z, z] of each class, in double precision."""
    rows, sums, square = total["rows"][:, None, None], total["sum"], total["square"]
    upper, right = triangle(sums.shape[1], sums.device)
    whole = sums.new_empty(len(sums), sums.shape[1], sums.shape[1])
    whole[:, upper, right] = square
    whole[:, right, upper] = square
    mean = sums / rows[:, 0].clamp(min=1)
    return mean, (whole - rows * mean[:, :, None] * mean[:, None, :]) / (rows - 1).clamp(min=1)


def draw(mean: Tensor, covariance: Tensor, counts: list[int], rng: np.random.Generator, dtype: torch.dtype) -> Tensor:
    """Draw samples of each class in turn: [sample, z]. The noise is drawn on the CPU, the same for every device."""
    values, vectors = eigh(covariance)
    root = ((vectors * values.clamp(min=0).sqrt()[:, None, :]) @ vectors.mT).to(dtype)
    noise = torch.as_tensor(rng.standard_normal((sum(counts), mean.shape[1]), dtype=np.float32)).to(root)
    parts = zip(split(noise, counts), root, mean.to(dtype), strict=True)
    return torch.cat([torch.addmm(centre, of_class, shape) for of_class, shape, centre in parts])


PRESET = Preset("ccvr", phases=(CCVRPhase,))
