"""FedSAM: the gradient of a second point is applied, on every engine."""

from dataclasses import dataclass, replace

import pytest
import torch
from test_quadratics import CENTRES, ROWS, federation
from torch import Tensor, nn
from worlds import gap, ready, run, run_one, same_bits, settings, some_digits, step_context

from moonfed.algorithms.fedsam import FedSAMLocal
from moonfed.core.rules import Aggregator, LocalRule, setting
from moonfed.core.tree import norm
from moonfed.models.custom import custom_encoder
from moonfed.training.runner import make_jobs
from moonfed.training.setup import set_up


@pytest.mark.parametrize("norm_kind", ["none", "batch"])
@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_a_radius_of_zero_is_fedavg_to_the_bit(engine, norm_kind):
    """Also with BatchNorm: its statistics are those of the first pass."""
    changes = {"model__norm": norm_kind}
    plain = run_one(settings("fedavg", **changes), engine).state.model
    assert same_bits(plain, run_one(settings("fedsam", algorithm__rho=0.0, **changes), engine).state.model)


class NoisyEncoder(nn.Module):
    """Draws from torch's generator while it trains."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 12)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.layer(x.flatten(1)).relu()
        return hidden + 0.3 * torch.randn_like(hidden) if self.training else hidden


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_both_gradients_of_a_step_see_the_same_noise(engine):
    """So a radius of zero is FedAvg to the bit for such a network too."""
    ends = []
    for name, off in (("fedavg", {}), ("fedsam", {"algorithm__rho": 0.0})):
        config = settings(name, model__model="auto", run__engine=engine, train__rounds=1, **off)
        context, trials = set_up([config], data=some_digits(), custom=custom_encoder(NoisyEncoder))
        assert context.nets.uses_torch_rng
        ends.append(run(trials, context)[0][0].state.model)
    assert same_bits(*ends)


def test_engines_agree_on_fedsam_and_it_is_not_fedavg(float64):
    one, two = (run_one(settings("fedsam"), engine).state.model for engine in ("sequential", "stacked"))
    assert gap(one, two) < 1e-9 < 1e-4 < gap(one, run_one(settings("fedavg")).state.model)


def test_the_step_uphill_has_length_rho_whatever_the_scale_of_the_loss():
    grads = {"a": torch.tensor([3.0, 0.0]), "b": torch.tensor([[4.0]])}
    for factor in (1e-3, 1.0, 1e3):
        step = FedSAMLocal(rho=0.5).perturb({k: v * factor for k, v in grads.items()}, step_context())
        assert float(norm(step)) == pytest.approx(0.5)
        assert step["a"].tolist() == pytest.approx([0.3, 0.0])


def test_where_the_gradient_is_zero_there_is_no_step_uphill():
    step = FedSAMLocal(rho=0.5).perturb({"a": torch.zeros(2)}, step_context())
    assert step["a"].tolist() == [0.0, 0.0]


def test_on_a_quadratic_the_gradient_at_the_second_point_is_longer_by_rho():
    """f = ||w||^2 / 2 has the gradient w; at w + rho w / ||w|| it is w (1 + rho / ||w||)."""
    w = {"w": torch.tensor([3.0, 4.0])}
    there = w["w"] + FedSAMLocal(rho=0.5).perturb(w, step_context(w))["w"]
    assert there.tolist() == pytest.approx([3.3, 4.4])


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_the_statistics_of_batchnorm_and_the_loss_are_those_of_the_first_pass_alone(engine):
    """After one step they are FedAvg's to the bit, far as the second point is; the weights are not."""
    context, (trial,) = ready(settings("fedavg", model__norm="batch"), engine)
    jobs = [replace(j, plan=type(j.plan)(*(part[:1] for part in j.plan))) for j in make_jobs(trial, context)]
    plain_results, sharp_results = (
        context.engine.run_cohort([replace(job, local=rule) for job in jobs])
        for rule in (LocalRule(), FedSAMLocal(rho=2.0))
    )
    plain, sharp = ([done.upload for done in results] for results in (plain_results, sharp_results))
    assert same_bits(*([done.losses for done in found] for found in (plain_results, sharp_results))), "of the first"
    assert same_bits([upload.buffers for upload in plain], [upload.buffers for upload in sharp])
    assert gap([upload.delta for upload in plain], [upload.delta for upload in sharp]) > 1e-4


@dataclass(frozen=True)
class SharpRound(FedSAMLocal):
    """f_i = factor ||w - c_i||^2 / 2."""

    factor: float = setting(1.0, "of the loss")

    def loss(self, out, y, ctx):
        return {"supervised": self.factor * ((out.logits - CENTRES[y]) ** 2).sum(-1).mean() / 2}


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_a_round_on_quadratics_is_the_hand_computed_one(engine):
    """With u = w - c the gradient at the second point is u (1 + rho / ||u||); decay and momentum act at w."""
    lr, momentum, decay, rho = 0.05, 0.5, 0.1, 0.4
    rule = SharpRound(rho=rho)
    trial, _ = federation(rule, Aggregator(), 2, engine, lr=lr, momentum=momentum, weight_decay=decay)
    by_hand = torch.zeros(3, dtype=torch.float64)
    for _ in range(2):
        start, by_hand = by_hand, torch.zeros(3, dtype=torch.float64)
        for centre, count in zip(CENTRES, ROWS, strict=True):
            w, velocity = start, torch.zeros(3, dtype=torch.float64)
            for _ in range(2 * (count // 8)):
                away = w - centre
                velocity = momentum * velocity + away * (1 + rho / away.norm()) + decay * w
                w = w - lr * velocity
            by_hand = by_hand + count / sum(ROWS) * w
    assert gap(trial.state.model.weights["w"], by_hand) < 1e-10


def test_a_larger_loss_with_a_smaller_learning_rate_takes_the_same_steps():
    """The second point does not depend on the scale of the loss."""
    one, other = (
        federation(SharpRound(rho=0.4, factor=factor), Aggregator(), 3, lr=0.05 / factor)[0].state.model
        for factor in (1.0, 100.0)
    )
    assert gap(one, other) < 1e-9
