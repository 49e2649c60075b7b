"""FedExP (Jhunjhunwala, Wang & Joshi 2023): extrapolate the mean update while the parties' updates disagree.

With D the mean update: D <- eta D, eta = max(1, sum_i p_i ||delta_i||^2 / (2 (||D||^2 + eps))), norms over all
weights. The authors' code multiplies eps by the size of the cohort and tests the mean of the last two models;
here eps is the paper's and the model that is sent is tested.
"""

from dataclasses import dataclass

import torch

from moonfed.core.algorithm import Preset
from moonfed.core.averaging import mean_of
from moonfed.core.rules import Aggregator, setting
from moonfed.core.tree import norm, scale
from moonfed.core.types import PartyInfo, Population, State, Tensors, Update, Upload


@dataclass(frozen=True)
class FedExPAggregator(Aggregator):
    """The mean update, as much longer as the squared lengths of the parties' updates ask for."""

    eps: float = setting(0.001, "eps, bounds the extrapolation where the mean update is small", gt=0)

    def contribute(self, upload: Upload, info: PartyInfo, share: float) -> Tensors:
        parts = super().contribute(upload, info, share)
        return parts | {"square/norm": parts["share"] * norm(upload.delta) ** 2} if parts else parts

    def update(self, state: State, total: Tensors, population: Population) -> Update | None:
        update = super().update(state, total, population)
        if update is None:
            return None
        ratio = mean_of("square", total)["norm"] / (2 * (norm(update.delta) ** 2 + self.eps))
        return update._replace(delta=scale(update.delta, torch.clamp(ratio, min=1.0)))


PRESET = Preset("fedexp", aggregator=FedExPAggregator)
