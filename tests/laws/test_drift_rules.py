"""FedDyn, FedCM and FedACG: what is exact about them, on quadratics and on digits."""

from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
import torch
from test_quadratics import CENTRES, CURVATURES, ROWS, PlainQuadratic, distance, federation, optimum, quadratic
from worlds import gap, ready, run, run_one, same_bits, settings, step_context

from moonfed.algorithms.fedacg import FedACGAggregator, FedACGLocal, FedACGOptimizer
from moonfed.algorithms.fedcm import FedCMAggregator, FedCMLocal
from moonfed.algorithms.feddyn import FedDynAggregator, FedDynLocal, FedDynOptimizer
from moonfed.algorithms.fedprox import FedProxLocal
from moonfed.core.algorithm import Algorithm
from moonfed.core.errors import UserError
from moonfed.core.rules import Aggregator, LocalRule
from moonfed.core.tree import add, scale, sub
from moonfed.core.types import PartyInfo, Population, Snapshot, State, Upload, as_tensors
from moonfed.server_optimizers.momentum import MomentumOptimizer
from moonfed.training.evaluate import evaluate
from moonfed.training.runner import make_jobs

EVEN = {"data__partition": "iid"}  # parties of equal size


@dataclass(frozen=True)
class DynamicQuadratic(FedDynLocal):
    def loss(self, out, y, ctx):
        return FedDynLocal(self.dynamic).loss(out, y, ctx) | {"supervised": quadratic(out, y)}


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_feddyn_reaches_the_optimum_of_unequal_parties_where_fedavg_does_not(engine):
    rules = DynamicQuadratic(dynamic=1.0), FedDynAggregator()
    trial, _ = federation(*rules, 40, engine, optimizer=FedDynOptimizer(), momentum=0.0, epochs=3, lr=0.2)
    plain, _ = federation(PlainQuadratic(), Aggregator(), 40, momentum=0.0, epochs=3, lr=0.2)
    assert distance(trial) < 1e-6 < 1e-2 < distance(plain)


def test_feddyn_with_a_small_alpha_is_exact_in_the_end():
    rules = DynamicQuadratic(dynamic=0.1), FedDynAggregator()
    trial, _ = federation(*rules, 600, optimizer=FedDynOptimizer(), momentum=0.0, epochs=3, lr=0.2)
    assert distance(trial) < 1e-12


def test_where_feddyn_stops_each_partys_gradient_is_its_drift_and_the_drifts_cancel():
    """grad f_i = -a_i h_i with a_i = alpha n / (N n_i), so that the sum of n_i grad f_i is 0 where that of h_i is."""
    rules = DynamicQuadratic(dynamic=1.0), FedDynAggregator()
    trial, _ = federation(*rules, 40, optimizer=FedDynOptimizer(), momentum=0.0, epochs=3, lr=0.2)
    drifts = torch.stack([as_tensors(trial.memory[party], "drift")["w"] for party in range(3)])
    alpha = sum(ROWS) / (3 * torch.tensor(ROWS, dtype=torch.float64))
    gradients = CURVATURES * (optimum() - CENTRES)
    assert float((gradients + alpha[:, None] * drifts).abs().max()) < 1e-7 < 0.1 < float(gradients.abs().max())
    assert float(drifts.sum(0).abs().max()) < 1e-7


@pytest.mark.parametrize("alpha", [0.0, 0.1, 1.0])
def test_what_feddyn_sends_is_twice_the_mean_less_the_mean_before(alpha, float64):
    """The plain mean of what the parties trained, everybody present, for every alpha; so alpha 0 is not FedAvg."""

    def after(rounds):
        changes = {"algorithm__dynamic": alpha, "model__norm": "batch"}
        config = settings("feddyn", **changes, train__rounds=rounds)
        context, (trial,) = ready(config)
        earlier = run_one(settings("feddyn", **changes, train__rounds=rounds - 1))
        jobs = make_jobs(replace(earlier, spec=trial.spec), context)
        uploads = [done.upload for done in context.engine.run_cohort(jobs)]
        ends = [add(job.state.model.weights, up.delta) for job, up in zip(jobs, uploads, strict=True)]
        assert len({job.info.rows for job in jobs}) > 1
        return run_one(config).state.model, *(plain_mean(each) for each in (ends, [up.buffers for up in uploads]))

    (_, before, _), (sent, mean, buffers) = after(2), after(3)
    assert gap(sent.weights, {k: 2 * v - before[k] for k, v in mean.items()}) < 1e-12
    assert gap({k: sent.buffers[k] for k in buffers}, buffers) < 1e-12


@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_feddyn_that_tests_the_mean_trains_the_same_models_and_keeps_what_is_sent_without_the_drift(fraction, float64):
    changes = {"cohort__fraction": fraction, "train__rounds": 4, "model__norm": "batch"}
    sent, mean = (run_one(settings("feddyn", algorithm__tested_model=kind, **changes)) for kind in ("sent", "mean"))
    assert gap(sent.memory, mean.memory) < 1e-12
    drift = as_tensors(sent.state.server_state, "drift")
    assert gap(drift, as_tensors(mean.state.server_state, "drift")) < 1e-12
    assert gap(mean.state.model.weights, sub(sent.state.model.weights, drift)) < 1e-12
    assert gap(mean.state.model.weights, sent.state.model.weights) > 1e-4
    info = mean.spec.infos[0]
    assert gap(*(trial.algorithm.aggregator.send(trial.state, info).model for trial in (sent, mean))) < 1e-12


def plain_mean(parts):
    return {k: torch.stack([part[k] for part in parts]).mean(0) for k in parts[0] if parts[0][k].is_floating_point()}


def test_the_first_round_of_feddyn_trains_the_models_of_fedprox():
    def trained(name, **changes):
        return run_one(settings(name, train__rounds=1, **EVEN, **changes))

    dynamic, near = trained("feddyn", algorithm__dynamic=0.5), trained("fedprox", algorithm__mu=0.5)
    start = trained("fedavg", train__lr=1e-30).state.model.weights
    mean = {k: (v + start[k]) / 2 for k, v in dynamic.state.model.weights.items()}  # sent: 2 mean - start
    assert gap(mean, near.state.model.weights) < 1e-6


def first_round(local, **changes):
    """What each party uploads in the first round; local makes a rule for a trial and a job."""
    context, (trial,) = ready(settings("feddyn", train__rounds=1, **changes))
    jobs = [replace(job, local=local(trial, job)) for job in make_jobs(trial, context)]
    return [done.upload.delta for done in context.engine.run_cohort(jobs)]


def test_a_party_with_the_mean_number_of_rows_begins_as_fedprox_does_to_the_bit():
    dynamic, near = (first_round(lambda *_, rule=r: rule, **EVEN) for r in (FedDynLocal(0.3), FedProxLocal(0.3)))
    assert same_bits(dynamic, near)


def test_parties_begin_as_fedprox_with_alpha_over_their_rows(float64):
    """mu = alpha n / (N n_i)."""

    def near(trial, job):
        population = trial.spec.population
        return FedProxLocal(0.3 * population.rows / (population.parties * job.info.rows))

    dynamic = first_round(lambda *_: FedDynLocal(0.3))
    assert gap(dynamic, first_round(near)) < 1e-12 < 1e-5 < gap(dynamic, first_round(lambda *_: FedProxLocal(0.3)))


def test_the_servers_drift_is_the_mean_of_all_parties_whoever_was_present(float64):
    changes = {"cohort__fraction": 0.5, "train__rounds": 5}
    trial = run_one(settings("feddyn", **changes))
    parties = [as_tensors(slots, "drift") for slots in trial.memory.values()]
    mean = {k: torch.stack([own[k] for own in parties]).sum(0) / 4 for k in parties[0]}
    assert gap(mean, as_tensors(trial.state.server_state, "drift")) < 1e-12


def test_feddyns_server_optimiser_fits_no_other_aggregator():
    with pytest.raises(UserError, match="does not fit: its server optimiser reads drift, which its aggregator does"):
        Algorithm("plain", LocalRule(), Aggregator(), FedDynOptimizer())


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_fedcm_without_the_last_direction_is_fedavg_to_the_bit(engine):
    plain = run_one(settings("fedavg"), engine)
    assert same_bits(plain.state.model, run_one(settings("fedcm", algorithm__own_part=1.0), engine).state.model)


def test_the_first_round_of_fedcm_is_fedavgs_with_smaller_gradients(float64):
    """Without momentum and decay: gradients times 0.5 are a learning rate times 0.5."""
    plain = {"train__rounds": 1, "train__momentum": 0.0, "train__weight_decay": 0.0}
    half = run_one(settings("fedavg", **plain, train__lr=0.025)).state.model
    assert gap(half, run_one(settings("fedcm", **plain, algorithm__own_part=0.5)).state.model) < 1e-12


def test_the_first_round_of_fedcm_does_not_scale_the_decay(float64):
    """Half of the gradient and all of the decay are half of the learning rate and twice the decay."""
    plain = {"train__rounds": 1, "train__momentum": 0.0}
    twice = run_one(settings("fedavg", **plain, train__lr=0.025, train__weight_decay=0.2)).state.model
    half = run_one(settings("fedcm", **plain, algorithm__own_part=0.5, train__weight_decay=0.1)).state.model
    assert gap(twice, half) < 1e-12


def test_a_step_of_fedcm_is_part_gradient_and_part_direction():
    """alpha 0.25, gradient 2, direction 6: 0.5 + 4.5."""
    state = State(Snapshot({"w": torch.zeros(1)}, {}), {"direction": {"w": torch.tensor([6.0])}}, {})
    ctx = step_context({"w": torch.zeros(1)}, state=state)
    assert FedCMLocal(own_part=0.25).transform_gradient({"w": torch.tensor([2.0])}, ctx)["w"].tolist() == [5.0]


@pytest.mark.parametrize(("momentum", "lr"), [(0.0, 0.05), (0.9, 0.05), (0.9, 0.01)])
def test_fedcm_without_gradients_repeats_the_last_move(momentum, lr, float64):
    """alpha near 0, parties with equal steps and no decay: all move as the mean of the last cohort did."""
    steady = {"train__momentum": momentum, "train__lr": lr, "train__weight_decay": 0.0, "train__epochs": 2, **EVEN}
    once = run_one(settings("fedcm", algorithm__own_part=1.0, train__rounds=1, **steady))
    context, (trial,) = ready(settings("fedcm", algorithm__own_part=1e-12, train__rounds=2, **steady))
    (twice,), _ = run([replace(trial, state=once.state, round=1)], context)
    models = [m.weights for m in (once.spec.init_model("model"), once.state.model, twice.state.model)]
    first, second = (sub(after, before) for before, after in pairwise(models))
    assert gap(first, second) < 1e-9 < 1e-3 < gap(*models[:2])


def test_the_direction_is_the_mean_of_the_gradients_that_were_applied():
    """Moves of 2 and -1 at rates times steps of 0.5 and 1, shares 1 and 3: -(1 * 2 / 0.5 - 3 * 1) / 4 = -0.25."""
    rule, total = FedCMAggregator(), {}
    for move, rate, share in ((2.0, 0.5, 1.0), (-1.0, 1.0, 3.0)):
        upload = Upload({"w": torch.tensor([move])}, {}, {}, 2, 2.0, lr=rate / 2)
        part = rule.contribute(upload, PartyInfo(0, 1, (1,)), share)
        total = add(total, part) if total else part
    update = rule.update(State(Snapshot({"w": torch.zeros(1)}, {}), {}, {}), total, Population(2, 4))
    assert update is not None
    assert as_tensors(update.sent, "direction")["w"].tolist() == [-0.25]


def test_engines_agree_on_fedcm_and_feddyn(float64):
    for name in ("fedcm", "feddyn", "feddyn:mean", "fedacg"):
        word = {"algorithm__tested_model": "mean"} if ":" in name else {}
        one, two = (run_one(settings(name.split(":")[0], **word), engine) for engine in ("sequential", "stacked"))
        assert gap(one.current_model, two.current_model) < 1e-9


def test_fedacg_without_momentum_is_fedprox_with_twice_the_weight(float64):
    still = {"algorithm__look_ahead": 0.0, "algorithm__beta": 0.05}
    near = run_one(settings("fedprox", algorithm__mu=0.1)).state.model
    assert gap(near, run_one(settings("fedacg", **still)).state.model) < 1e-12


@dataclass(frozen=True)
class Slope(FedACGLocal):
    """A loss whose gradient is the same everywhere."""

    def loss(self, out, y, ctx):
        return {"supervised": out.logits.sum(-1).mean()}


def test_where_gradients_do_not_depend_on_the_point_fedacg_is_momentum_at_the_server():
    ahead, _ = federation(Slope(), FedACGAggregator(look_ahead=0.6), 4, optimizer=FedACGOptimizer())
    plain = MomentumOptimizer(server_momentum=0.6, momentum_form="plain")
    heavy, _ = federation(Slope(), Aggregator(), 4, optimizer=plain)
    assert gap(ahead.state.model.weights, heavy.state.model.weights) < 1e-12


def test_fedacg_sends_the_model_ahead_and_tests_the_one_behind():
    context, trials = ready(settings("fedacg", train__rounds=2))
    (trial,), logs = run(trials, context)
    sent = trial.algorithm.aggregator.send(trial.state, trial.spec.infos[0])
    momentum = as_tensors(trial.state.server_state, "momentum")
    ahead = {k: v + 0.85 * momentum[k] for k, v in trial.state.model.weights.items()}
    assert gap(sent.model.weights, ahead) < 1e-6
    assert sent.server_state == {}
    behind, front = (
        evaluate(context.nets.inference, trial.spec.evaluation, m) for m in (trial.state.model, sent.model)
    )
    assert logs[0][-1]["test_loss"] == behind.loss != front.loss


def test_the_model_of_fedacg_is_the_mean_of_what_the_parties_trained_and_moves_by_its_momentum(float64):
    context, (trial,) = ready(settings("fedacg", train__rounds=3))
    before = run_one(settings("fedacg", train__rounds=2))
    jobs = make_jobs(replace(before, spec=trial.spec), context)
    rows = sum(job.info.rows for job in jobs)
    mean = scale(before.state.model.weights, 0.0)
    for job, done in zip(jobs, context.engine.run_cohort(jobs), strict=True):
        mean = add(mean, scale(add(job.state.model.weights, done.upload.delta), job.info.rows / rows))
    after = run_one(settings("fedacg", train__rounds=3)).state
    assert gap(after.model.weights, mean) < 1e-12
    moved = sub(after.model.weights, before.state.model.weights)
    assert gap(moved, as_tensors(after.server_state, "momentum")) < 1e-12
