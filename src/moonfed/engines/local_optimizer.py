"""Optimisers of local training: pure functions from weights, gradients and their own state to the next ones."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from moonfed.core.tree import zeros_like
from moonfed.core.types import Optim, Slots, Tensors, as_tensor, as_tensors


@dataclass(frozen=True)
class LocalOptimizer:
    """Takes the steps of all lanes of a stack; what may differ from lane to lane is in Optim."""

    slots: ClassVar[tuple[str, ...]]  # names of its state, also in the memory of a rule that keeps the optimiser
    has_momentum: ClassVar[bool]  # whether it reads the setting
    default_lr: ClassVar[float | None] = None  # None: the default of the setting

    def init(self, weights: Tensors) -> Slots:
        """Return the state before the first step."""
        raise NotImplementedError

    def step(self, weights: Tensors, grads: Tensors, state: Slots, optim: Optim) -> tuple[Tensors, Slots]:
        """Return the weights and the state after a step."""
        raise NotImplementedError


@dataclass(frozen=True)
class Sgd(LocalOptimizer):
    """SGD: v <- momentum v + (g + weight_decay w), w <- w - lr v."""

    slots = ("velocity",)
    has_momentum = True

    def init(self, weights: Tensors) -> Slots:
        """Start at rest."""
        return {"velocity": zeros_like(weights)}

    def step(self, weights: Tensors, grads: Tensors, state: Slots, optim: Optim) -> tuple[Tensors, Slots]:
        """Move along the velocity."""
        old = as_tensors(state, "velocity")
        velocity = {k: optim.momentum * v + (grads[k] + optim.weight_decay * weights[k]) for k, v in old.items()}
        return {k: w - optim.lr * velocity[k] for k, w in weights.items()}, {"velocity": velocity}


@dataclass(frozen=True)
class AdamW(LocalOptimizer):
    """AdamW (Loshchilov & Hutter 2019), with torch's constants: weight decay acts on the weights, not on the moments.

    m <- b1 m + (1 - b1) g, v <- b2 v + (1 - b2) g^2, w <- (1 - lr weight_decay) w - lr m' / (sqrt(v') + eps), where
    m' = m / (1 - b1^t) and v' = v / (1 - b2^t) undo the start at zero.
    """

    slots = ("first_moment", "second_moment", "updates")
    has_momentum = False
    default_lr = 0.001
    beta1: ClassVar[float] = 0.9
    beta2: ClassVar[float] = 0.999
    eps: ClassVar[float] = 1e-8

    def init(self, weights: Tensors) -> Slots:
        """Start with zero moments after zero updates; the count is a tensor, since lanes differ in it."""
        count = next(iter(weights.values())).new_zeros(())
        return {"first_moment": zeros_like(weights), "second_moment": zeros_like(weights), "updates": count}

    def step(self, weights: Tensors, grads: Tensors, state: Slots, optim: Optim) -> tuple[Tensors, Slots]:
        """Move by the first moment over the root of the second."""
        m, v = as_tensors(state, "first_moment"), as_tensors(state, "second_moment")
        t = as_tensor(state, "updates") + 1
        m = {k: self.beta1 * m[k] + (1 - self.beta1) * g for k, g in grads.items()}
        v = {k: self.beta2 * v[k] + (1 - self.beta2) * (g * g) for k, g in grads.items()}
        # 1 - b^t as -expm1(t log b): in float32 the difference itself would lose four digits at the start.
        rate = optim.lr / -torch.expm1(t * math.log(self.beta1))
        root = torch.sqrt(-torch.expm1(t * math.log(self.beta2)))
        shrink = 1 - optim.lr * optim.weight_decay
        after = {k: w * shrink - rate * m[k] / (torch.sqrt(v[k]) / root + self.eps) for k, w in weights.items()}
        return after, {"first_moment": m, "second_moment": v, "updates": t}


OPTIMIZERS: dict[str, LocalOptimizer] = {"sgd": Sgd(), "adamw": AdamW()}
SGD = OPTIMIZERS["sgd"]
