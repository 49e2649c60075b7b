"""FedSAM (Qu et al. 2022; Caldarola et al. 2022): apply the gradient of a point uphill.

e = rho g / ||g||, g the gradient of the batch at w, the norm over all weights of the party; the step is SGD's
with the gradient at w + e. BatchNorm's statistics are those of the first pass.
"""

from dataclasses import dataclass

from moonfed.core.algorithm import Preset
from moonfed.core.rules import LocalRule, setting
from moonfed.core.tree import norm, scale
from moonfed.core.types import StepContext, Tensors

EPSILON = 1e-12  # added to the norm


@dataclass(frozen=True)
class FedSAMLocal(LocalRule):
    """Cross-entropy with sharpness-aware steps: two gradients each."""

    rho: float = setting(0.05, "radius of the step uphill", ge=0)

    def perturb(self, grads: Tensors, ctx: StepContext) -> Tensors:
        return scale(grads, self.rho / (norm(grads) + EPSILON))


PRESET = Preset("fedsam", FedSAMLocal)
