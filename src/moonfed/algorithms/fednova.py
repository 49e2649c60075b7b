"""FedNova (Wang et al. 2020): each update divided by its own amount of work before the mean is taken."""

from dataclasses import dataclass

from moonfed.algorithms.fedavg import mean_of, moved, weighed
from moonfed.core.rules import Server
from moonfed.core.tree import scale
from moonfed.core.types import PartyInfo, Population, State, Tensors, Upload


@dataclass(frozen=True)
class Normalised(Server):
    """w <- w + (sum_i p_i a_i) (sum_i p_i delta_i / a_i), a_i the party's sum of gradient coefficients."""

    def contribute(self, upload: Upload, facts: PartyInfo, share: float) -> Tensors:
        per_unit = weighed(scale(upload.delta, 1 / upload.effective_steps), upload.buffers, share)
        return per_unit | {"mass/a": per_unit["share"] * upload.effective_steps}

    def step(self, state: State, total: Tensors, population: Population) -> State:
        effective = mean_of("mass", total)["a"]
        return state._replace(model=moved(state.model, scale(mean_of("delta", total), effective), total))
