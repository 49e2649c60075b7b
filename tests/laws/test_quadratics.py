"""On quadratics the optimum of eq. 2 is known: who reaches it, and who does not."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from worlds import run, settings

from moonfed.aggregators.fednova import FedNovaAggregator
from moonfed.algorithms.fedprox import FedProxLocal
from moonfed.algorithms.scaffold import ScaffoldAggregator, ScaffoldLocal
from moonfed.algorithms.scaffold_niid import ScaffoldNiidAggregator, ScaffoldNiidLocal
from moonfed.core.algorithm import Algorithm
from moonfed.core.rules import Aggregator, LocalRule, ServerOptimizer
from moonfed.core.types import Optim, Outputs, PartyInfo, Population, Snapshot, State, StepContext, Upload, as_tensors
from moonfed.data.dataset import Augmentation, Dataset
from moonfed.engines import ENGINES, EngineOptions, nets_of
from moonfed.engines.party_round import effective_steps_of
from moonfed.training.cohort import Cohorts
from moonfed.training.network import NetSpec
from moonfed.training.resolve import resolve
from moonfed.training.trial import RunContext, Trial, TrialSpec

CENTRES = torch.tensor([[1.0, -2.0, 0.5], [-3.0, 1.0, 2.0], [0.5, 4.0, -1.0]], dtype=torch.float64)
CURVATURES = torch.tensor([[1.0, 0.5, 2.0], [0.3, 1.5, 1.0], [2.0, 0.8, 0.4]], dtype=torch.float64)
SGD = ServerOptimizer()
ROWS = (24, 8, 48)  # unequal parties, so unequal numbers of steps


class Point(nn.Module):
    """A model that is nothing but a point."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(3))

    def forward(self, x):
        here = self.w.expand(len(x), 3)
        return Outputs(here, here, here)


def quadratic(out, y):
    """Party y's objective: half the squared distance to its centre, weighed by its curvature."""
    return (CURVATURES[y] * (out.logits - CENTRES[y]) ** 2).sum(-1).mean() / 2


@dataclass(frozen=True)
class PlainQuadratic(LocalRule):
    def loss(self, out, y, ctx):
        return {"supervised": quadratic(out, y)}


@dataclass(frozen=True)
class ControlledQuadratic(ScaffoldLocal):
    def loss(self, out, y, ctx):
        return {"supervised": quadratic(out, y)}


@dataclass(frozen=True)
class ProximalQuadratic(FedProxLocal):
    def loss(self, out, y, ctx):
        parts = FedProxLocal(self.mu).loss(out, y, ctx)
        return parts | {"supervised": quadratic(out, y)}


def optimum():
    """The minimum of eq. 2: every party weighed by its rows."""
    share = torch.tensor(ROWS, dtype=torch.float64)[:, None] / sum(ROWS)
    return (share * CURVATURES * CENTRES).sum(0) / (share * CURVATURES).sum(0)


def federation(local, aggregator, rounds, engine="sequential", gamma=False, optimizer=SGD, **changes):
    owners = torch.repeat_interleave(torch.arange(3), torch.tensor(ROWS))
    blank = torch.zeros(len(owners), 1, 1, 1, dtype=torch.uint8)
    data = Dataset("quadratics", blank, owners, blank[:3], owners[:3], 3, (0.0,), (1.0,), Augmentation(), 8)
    train = {"rounds": rounds, "epochs": 2, "batch": 8, "lr": 0.05, "momentum": 0.9, "weight_decay": 0.0} | changes
    config = settings(**{f"train__{k}": v for k, v in train.items()}, data__parties=3, run__gamma=gamma)
    parts = [np.flatnonzero(owners.numpy() == i) for i in range(3)]
    infos = [PartyInfo(i, rows, tuple(rows * (k == i) for k in range(3))) for i, rows in enumerate(ROWS)]
    start = Snapshot({"w": torch.zeros(3, dtype=torch.float64)}, {})
    algorithm = Algorithm("quadratic", local, aggregator, optimizer)
    state = State(start, aggregator.init(start, lambda name: start, Population(3, sum(ROWS))), optimizer.init(start))
    nets = nets_of(Point(), data)
    context = RunContext(data, nets, ENGINES[engine](nets, data, EngineOptions()))
    resolved = resolve(config, data)
    network = NetSpec("cnn", None, 3, 0)  # type: ignore[arg-type]
    cohorts = Cohorts(resolved, infos)
    spec = TrialSpec("quadratic", resolved, algorithm, network, torch.device("cpu"), parts, infos, cohorts, data)
    (trial,), (records,) = run([Trial(spec, state)], context)
    assert trial.failure is None, trial.failure
    return trial, records


def distance(trial):
    return float((trial.state.model.weights["w"] - optimum()).norm())


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_scaffold_reaches_the_optimum_under_momentum_and_unequal_parties(engine):
    trial, _ = federation(ControlledQuadratic(), ScaffoldAggregator(), 100, engine)
    assert distance(trial) < 1e-9


def test_scaffolds_party_controls_end_at_their_own_gradients_at_the_optimum():
    trial, _ = federation(ControlledQuadratic(), ScaffoldAggregator(), 100)
    for party in range(3):
        gradient = CURVATURES[party] * (optimum() - CENTRES[party])
        assert float((as_tensors(trial.memory[party], "control")["w"] - gradient).abs().max()) < 1e-8


def test_fedavg_stops_away_from_the_optimum():
    assert distance(federation(PlainQuadratic(), Aggregator(), 100)[0]) > 0.3


def test_fednova_nears_the_optimum_as_the_learning_rate_falls_and_fedavg_does_not():
    """With unequal steps FedAvg solves another problem at any learning rate; FedNova's error is of its first order."""
    nova = [distance(federation(PlainQuadratic(), FedNovaAggregator(), 40 * k, lr=0.02 / k)[0]) for k in (1, 4)]
    mean = [distance(federation(PlainQuadratic(), Aggregator(), 40 * k, lr=0.02 / k)[0]) for k in (1, 4)]
    assert nova[1] < 0.35 * nova[0] < 0.35 * mean[0]
    assert mean[1] > 0.6 * mean[0]


@dataclass(frozen=True)
class RoundQuadratic(LocalRule):
    def loss(self, out, y, ctx):
        return {"supervised": 0.7 * ((out.logits - CENTRES[y]) ** 2).sum(-1).mean() / 2}


def test_gamma_is_the_factor_by_which_the_gradient_shrinks():
    """One curvature h = 0.7, no momentum: K steps shrink the gradient by (1 - lr h)^K."""
    _, rows = federation(RoundQuadratic(), Aggregator(), 1, gamma=True, momentum=0.0)
    for party, count in enumerate(ROWS):
        steps = 2 * (count // 8)
        assert rows[0]["gamma"][str(party)] == pytest.approx((1 - 0.05 * 0.7) ** steps, rel=1e-12)


def test_the_proximal_term_is_half_mu_times_the_squared_distance():
    """One step from the global model has no pull; the second is pulled back by mu times the first."""
    rule = ProximalQuadratic(mu=0.4)
    trial, _ = federation(rule, Aggregator(), 1, epochs=1, momentum=0.0)
    by_hand = torch.zeros(3, dtype=torch.float64)
    for party, count in enumerate(ROWS):
        w = torch.zeros(3, dtype=torch.float64)
        for _ in range(count // 8):
            w = w - 0.05 * (CURVATURES[party] * (w - CENTRES[party]) + 0.4 * w)
        by_hand += count / sum(ROWS) * w
    assert float((trial.state.model.weights["w"] - by_hand).abs().max()) < 1e-14


def test_the_gradient_mass_is_what_sgd_really_adds_up():
    """A constant gradient of one: the distance travelled over the learning rate is a_i of FedNova."""
    for steps, momentum in ((1, 0.9), (7, 0.9), (7, 0.0), (40, 0.5)):
        travelled = velocity = 0.0
        for _ in range(steps):
            velocity = momentum * velocity + 1.0
            travelled += velocity
        assert effective_steps_of(steps, momentum) == pytest.approx(travelled, rel=1e-13)


def test_gamma_is_of_the_whole_local_objective():
    """With curvature h = 0.7 and a proximal term, K steps shrink the gradient by (1 - lr (h + mu))^K."""
    _, rows = federation(RoundProximal(mu=0.4), Aggregator(), 1, gamma=True, momentum=0.0)
    for party, count in enumerate(ROWS):
        steps = 2 * (count // 8)
        assert rows[0]["gamma"][str(party)] == pytest.approx((1 - 0.05 * (0.7 + 0.4)) ** steps, rel=1e-12)


@dataclass(frozen=True)
class RoundProximal(FedProxLocal):
    def loss(self, out, y, ctx):
        parts = FedProxLocal(self.mu).loss(out, y, ctx)
        return parts | {"supervised": 0.7 * ((out.logits - CENTRES[y]) ** 2).sum(-1).mean() / 2}


@dataclass(frozen=True)
class NudgedQuadratic(ScaffoldNiidLocal):
    def init_memory(self, state, info, init_model):
        return ScaffoldNiidLocal().init_memory(state, info, lambda name: state.model)  # there is no random network

    def loss(self, out, y, ctx):
        return {"supervised": quadratic(out, y)}


def test_scaffold_as_niid_bench_runs_it_follows_its_formulas():
    """y <- y - lr (c - c_i) after each step, c_i+ = c_i - c + (x - y) / (K lr), c <- c + mean of the changes."""
    lr, momentum = 0.05, 0.5
    trial, _ = federation(NudgedQuadratic(), ScaffoldNiidAggregator(), 3, momentum=momentum)
    x, c, own = (torch.zeros(n, 3, dtype=torch.float64).squeeze(0) for n in (1, 1, 3))
    for _ in range(3):
        ends, changes = [], []
        for party, count in enumerate(ROWS):
            y, velocity, steps = x.clone(), torch.zeros_like(x), 2 * (count // 8)
            for _ in range(steps):
                velocity = momentum * velocity + CURVATURES[party] * (y - CENTRES[party])
                y = y - lr * velocity - lr * (c - own[party])
            ends.append(count / sum(ROWS) * y)
            changes.append(-c + (x - y) / (steps * lr))
        x, c = torch.stack(ends).sum(0), c + torch.stack(changes).mean(0)
        own = own + torch.stack(changes)
    assert float((trial.state.model.weights["w"] - x).abs().max()) < 1e-12
    assert float(c.abs().max()) > 0.1
    assert float((as_tensors(trial.state.sent, "state_control")["weights/w"] - c).abs().max()) < 1e-12


def test_niid_benchs_scaffold_corrects_buffers_and_leaves_counters():
    ones = {"weights/w": torch.ones(2), "buffers/mean": torch.ones(2)}
    state = State(Snapshot({}, {}), {"state_control": {k: 3 * v for k, v in ones.items()}}, {})
    optim = Optim(*torch.tensor([0.5, 0.0, 0.0, 0.0]))
    model = Snapshot({"w": torch.zeros(2)}, {"mean": torch.zeros(2), "count": torch.tensor(7)})
    nothing: Any = None
    ctx = StepContext({}, {}, state, {"state_control": ones}, optim, nothing, nothing)
    after = ScaffoldNiidLocal().after_step(model, ctx)
    assert after.weights["w"].tolist() == after.buffers["mean"].tolist() == [-1.0, -1.0]
    assert int(after.buffers["count"]) == 7


def test_buffers_are_averaged_by_share_and_integers_rounded():
    def upload(value, count):
        return Upload({"w": torch.zeros(1)}, {"mean": torch.tensor([value]), "count": torch.tensor(count)}, {}, 1, 1.0)

    total = {}
    for share, sent in ((1.0, upload(2.0, 10)), (3.0, upload(6.0, 13))):
        part = Aggregator().contribute(sent, PartyInfo(0, 1, ()), share)
        total = {k: total[k] + v for k, v in part.items()} if total else part
    old = Snapshot({"w": torch.zeros(1)}, {"mean": torch.zeros(1), "count": torch.tensor(0)})
    update = Aggregator().update(State(old, {}, {}), total, Population(2, 4))
    assert update is not None
    new = update.buffers
    assert (new["mean"].tolist(), int(new["count"])) == ([5.0], 12)
