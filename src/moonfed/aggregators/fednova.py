"""FedNova (Wang et al. 2020): each update is divided by its own amount of work before the mean is taken."""

from dataclasses import dataclass

from moonfed.core.algorithm import Preset
from moonfed.core.averaging import mean_buffers, mean_of, weighted
from moonfed.core.rules import Aggregator
from moonfed.core.tree import scale
from moonfed.core.types import PartyInfo, Population, State, Tensors, Update, Upload


@dataclass(frozen=True)
class FedNovaAggregator(Aggregator):
    """Update (sum_i p_i a_i) (sum_i p_i delta_i / a_i), a_i the party's sum of gradient coefficients."""

    divides_by_steps = True
    needs_sgd = "it divides updates by the number of gradients that SGD's steps apply"

    def contribute(self, upload: Upload, info: PartyInfo, share: float) -> Tensors:
        per_step = weighted(scale(upload.delta, 1 / upload.effective_steps), upload.buffers, share)
        return per_step | {"effective_steps/a": per_step["share"] * upload.effective_steps}

    def update(self, state: State, total: Tensors, population: Population) -> Update:
        mean_steps = mean_of("effective_steps", total)["a"]
        return Update(scale(mean_of("delta", total), mean_steps), mean_buffers(state, total), {}, {})


PRESET = Preset("fednova", aggregator=FedNovaAggregator)
