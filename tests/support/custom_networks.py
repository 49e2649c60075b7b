"""A network that cannot be vectorised, and a first cohort for a custom network."""

from dataclasses import replace
from math import prod

from torch import Tensor, nn
from worlds import settings, some_digits

from moonfed.engines import EngineOptions, Nets, nets_of
from moonfed.engines.stacked.stacked_engine import Stacked
from moonfed.models import EncoderSpec, Model
from moonfed.models.model import Encoder
from moonfed.training.resolve import resolve
from moonfed.training.runner import make_jobs
from moonfed.training.trial import RunContext, new_trial


class Branching(Encoder):
    """An encoder that branches on its values, which vmap cannot do for all lanes at once."""

    features = 8

    def __init__(self, spec: EncoderSpec) -> None:
        super().__init__(spec)
        self.layer = nn.Linear(prod(spec.shape), 8)

    def forward(self, x: Tensor) -> Tensor:
        out = self.layer(x.flatten(1))
        return out if bool(out.sum() > 0) else -out


def custom_nets(encoder: Encoder) -> Nets:
    return nets_of(Model(encoder, 10, 4), some_digits())


def cohort_of(nets: Nets, options: EngineOptions, device: str = "cpu"):
    """Return the first jobs of a tiny MOON federation with a custom network, and the stacked engine's call for them."""
    data = some_digits(device=device)
    nets = nets._replace(training=nets.training.to(device), inference=nets.inference.to(device))
    config = resolve(settings("moon", data__parties=4), data)
    bench = RunContext(data, nets, Stacked(nets, data, options))
    trial = new_trial(config, bench)
    model = {k: v.detach().clone() for k, v in nets.training.named_parameters()}
    trial = replace(trial, state=trial.state._replace(model=trial.state.model._replace(weights=model)))
    jobs = make_jobs(trial, bench)
    return jobs, lambda: bench.engine.run_cohort(jobs)
