"""Private tensors: what stays at a party never travels, and its own model is judged on rows like its own."""

from dataclasses import dataclass, replace

import pytest
import torch
from test_ditto import AloneLocal
from torch import nn
from worlds import context_for, gap, ready, run, run_one, same_bits, settings, some_digits, trained

from moonfed.algorithms.fedper import FedPerLocal
from moonfed.algorithms.solo import SoloAggregator
from moonfed.core.algorithm import Algorithm, Preset
from moonfed.core.errors import UserError
from moonfed.core.rules import Aggregator
from moonfed.core.types import as_snapshot
from moonfed.models.custom import custom_encoder
from moonfed.training.evaluate import evaluate
from moonfed.training.network import build
from moonfed.training.registry import ALGORITHMS
from moonfed.training.resolve import resolve
from moonfed.training.runner import make_jobs
from moonfed.training.setup import set_up
from moonfed.training.trial import new_trial

ENGINES = ("sequential", "stacked")
PERSONAL = ("fedper", "fedrep", "fedbn")


@pytest.mark.parametrize("engine", ENGINES)
def test_fedbn_without_normalisation_is_fedavg_to_the_bit(engine):
    plain, fedbn = (run_one(settings(name), engine) for name in ("fedavg", "fedbn"))
    assert same_bits(plain.state.model, fedbn.state.model)


@dataclass(frozen=True)
class SharedLocal(FedPerLocal):
    """FedPer with nothing private."""

    private = frozenset()


@dataclass(frozen=True)
class NothingTravels(Aggregator):
    """A server for parties whose whole model is private."""

    def contribute(self, upload, info, share):
        assert not upload.delta
        return {}

    def update(self, state, total, population):
        return None


@pytest.mark.parametrize("engine", ENGINES)
def test_fedper_with_nothing_private_is_fedavg_to_the_bit(engine, monkeypatch):
    monkeypatch.setitem(ALGORITHMS, "shared", Preset("shared", SharedLocal))
    plain, shared = (run_one(settings(name, model__norm="batch"), engine) for name in ("fedavg", "shared"))
    assert same_bits(plain.state, shared.state)


@pytest.mark.parametrize("engine", ENGINES)
def test_fedper_with_everything_private_trains_every_party_alone_to_the_bit(engine, monkeypatch):
    monkeypatch.setitem(ALGORITHMS, "alone", Preset("alone", AloneLocal, SoloAggregator))
    alone = run_one(settings("alone", model__norm="batch"), engine)
    context, (trial,) = ready(settings("fedper", model__norm="batch"), engine)
    algorithm = Algorithm("fedper", FedPerLocal(), NothingTravels())
    everything = frozenset({*trial.state.model.weights, *trial.state.model.buffers})
    (own,), _ = run([replace(trial, spec=replace(trial.spec, algorithm=algorithm, private=everything))], context)
    assert own.failure is None
    assert same_bits(list(alone.personal_models().values()), list(own.personal_models().values()))


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_fedbn_keeps_the_normalisation_of_residual_shortcuts_and_nothing_but_normalisation(norm):
    _, (trial,) = ready(settings("fedbn", model__model="resnet8", model__norm=norm))
    kinds = (nn.BatchNorm2d, nn.GroupNorm)
    norms = {name for name, part in build(trial.spec.network).named_modules() if isinstance(part, kinds)}
    assert {name.rpartition(".")[0] for name in trial.spec.private} == norms
    assert any("shortcut" in name for name in norms)


def test_fedbn_keeps_every_kind_of_normalisation_of_a_custom_encoder():
    class Normed(nn.Module):
        def __init__(self, shape: tuple[int, ...]) -> None:
            super().__init__()
            kinds = (nn.InstanceNorm2d(3, affine=True, track_running_stats=True), nn.BatchNorm2d(3), nn.GroupNorm(1, 3))
            self.layers = nn.Sequential(nn.Conv2d(1, 3, 3), *kinds, nn.Flatten(), nn.LayerNorm(108), nn.RMSNorm(108))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layers(x)

    config = settings("fedbn", model__model="auto", model__projection=0)
    _, (trial,) = set_up([config], data=some_digits(), custom=custom_encoder(Normed))
    assert {name.split(".")[2] for name in trial.spec.private} == {"1", "2", "3", "5", "6"}


@pytest.mark.parametrize(("name", "role"), [("fedper", "head."), ("fedrep", "head."), ("fedbn", "layers.1.")])
@pytest.mark.parametrize("engine", ENGINES)
def test_private_tensors_are_in_no_upload_and_stay_as_the_party_left_them(name, role, engine):
    config = settings(name, model__norm="batch")
    bench = context_for(config, engine)
    trial = new_trial(resolve(config, bench.data), bench)
    for job, result in zip(make_jobs(trial, bench), bench.engine.run_cohort(make_jobs(trial, bench)), strict=True):
        sent = {*result.upload.delta, *result.upload.buffers}
        kept = as_snapshot(result.memory, "private")
        assert sent.isdisjoint({*kept.weights, *kept.buffers})
        assert sent | {*kept.weights, *kept.buffers} == {*trial.state.model.weights, *trial.state.model.buffers}
        assert any(role in k for k in kept.weights)
        assert job.private == {*kept.weights, *kept.buffers}


@pytest.mark.parametrize("name", PERSONAL)
def test_the_servers_private_tensors_never_move_and_the_parties_differ(name):
    config = settings(name, model__norm="batch")
    trial = run_one(config)
    start = trial.spec.init_model("model")
    for k in trial.spec.private & set(start.weights):
        assert torch.equal(trial.state.model.weights[k], start.weights[k])
    models = list(trial.personal_models().values())
    assert len(models) == 4
    assert gap(models[0], models[1]) > 1e-4
    shared = set(start.weights) - trial.spec.private
    assert all(torch.equal(models[0].weights[k], models[1].weights[k]) for k in shared)


@pytest.mark.parametrize("name", PERSONAL)
def test_engines_agree_on_personal_methods(name, float64):
    one, two = (run_one(settings(name, model__norm="batch"), engine) for engine in ENGINES)
    assert gap(one.state.model, two.state.model) < 1e-9
    for mine, other in zip(one.personal_models().values(), two.personal_models().values(), strict=True):
        assert gap(mine, other) < 1e-9


def test_fedrep_moves_one_part_at_a_time():
    """With all steps for the output layer the body stays; with none it is the output layer that stays."""
    config = settings("fedrep", train__rounds=1, algorithm__head_part=1.0)
    trial = run_one(config)
    assert same_bits(trial.state.model, trial.spec.init_model("model"))
    still = run_one(settings("fedrep", train__rounds=1, algorithm__head_part=0.0))
    heads = [as_snapshot(slots, "private") for slots in still.memory.values()]
    start = still.spec.init_model("model").weights
    assert all(torch.equal(v, start[k]) for head in heads for k, v in head.weights.items())
    assert gap(still.state.model, still.spec.init_model("model")) > 1e-4


@pytest.mark.parametrize("engine", ENGINES)
def test_fedrep_trains_the_output_layer_first_and_then_the_body_under_it(engine):
    """With decay and momentum: what is fixed stays to the bit, in the first half of the steps and in the second."""
    config = settings("fedrep", train__weight_decay=0.1, train__epochs=2, algorithm__head_part=0.5)
    context, (trial,) = ready(config, engine)
    jobs = make_jobs(trial, context)
    halves = [replace(j, plan=type(j.plan)(*(part[: -(-len(part) // 2)] for part in j.plan))) for j in jobs]
    heads_only = replace(trial.algorithm.local, head_part=1.0)
    first = context.engine.run_cohort([replace(job, local=heads_only) for job in halves])
    whole = context.engine.run_cohort(jobs)
    start = trial.spec.init_model("model").weights
    for half, done in zip(first, whole, strict=True):
        assert not any(delta.any() for delta in half.upload.delta.values()), "the body"
        assert all(delta.any() for delta in done.upload.delta.values())
        heads = [as_snapshot(result.memory, "private").weights for result in (half, done)]
        assert same_bits(*heads)
        assert gap(heads[0], {k: start[k] for k in heads[0]}) > 1e-4


@pytest.mark.parametrize("engine", ENGINES)
def test_the_body_of_fedrep_is_trained_however_few_steps_a_party_takes(engine):
    """Nine tenths of five steps are rounded to all of them; a round of one step trains the body."""
    context, (trial,) = ready(settings("fedrep", train__epochs=3), engine)
    jobs = make_jobs(trial, context)
    start = trial.spec.init_model("model").weights
    for steps in (1, 2, 5, 9):
        short = [replace(j, plan=type(j.plan)(*(part[:steps] for part in j.plan))) for j in jobs]
        assert {len(job.plan.rows) for job in short} == {steps}
        for done in context.engine.run_cohort(short):
            head = as_snapshot(done.memory, "private").weights
            assert all(delta.any() for delta in done.upload.delta.values())
            assert all(torch.equal(w, start[k]) == (steps == 1) for k, w in head.items())


@pytest.mark.parametrize("engine", ENGINES)
def test_the_body_of_fedrep_begins_its_steps_with_an_optimiser_at_rest(engine, float64):
    """Without decay the second half of a round is plain training of the body from where the heads ended."""
    config = settings("fedrep", train__weight_decay=0.0, train__epochs=2, algorithm__head_part=0.5)
    context, (trial,) = ready(config, engine)
    jobs = make_jobs(trial, context)
    cuts = [-(-len(job.plan.rows) // 2) for job in jobs]
    halves = [replace(j, plan=type(j.plan)(*(p[:cut] for p in j.plan))) for j, cut in zip(jobs, cuts, strict=True)]
    heads = context.engine.run_cohort([replace(j, local=replace(trial.algorithm.local, head_part=1.0)) for j in halves])
    rest = [
        replace(job, plan=type(job.plan)(*(p[cut:] for p in job.plan)), memory=head.memory, local=BodyLocal())
        for job, head, cut in zip(jobs, heads, cuts, strict=True)
    ]
    whole, apart = (context.engine.run_cohort(each) for each in (jobs, rest))
    assert gap([done.upload.delta for done in whole], [done.upload.delta for done in apart]) < 1e-12


@dataclass(frozen=True)
class BodyLocal(FedPerLocal):
    """Plain training of everything but the output layer."""

    def after_step(self, model, ctx):
        return model._replace(weights={k: ctx.weights[k] if "head." in k else w for k, w in model.weights.items()})


@pytest.mark.parametrize("name", [*PERSONAL, "ditto"])
def test_the_accuracy_of_a_personal_model_is_that_of_test_rows_with_the_partys_class_shares(name):
    config = settings(name, data__partition="shards", data__classes_per_party=3, train__epochs=2, model__norm="batch")
    context, trials = ready(config)
    (trial,), (rows,) = run(trials, context)
    infos, models = trial.spec.infos, trial.personal_models()
    scores = {party: evaluate(context.nets.inference, context.data, model) for party, model in models.items()}
    assert rows[-1]["accuracy_by_party"] == [score.at_party(infos[party]) for party, score in scores.items()]
    assert rows[-1]["accuracy_by_party"] != [score.accuracy for score in scores.values()]


def test_a_personal_model_is_judged_on_rows_like_the_partys_own():
    """A party that has three classes is judged on those alone."""
    changes = {"data__partition": "shards", "data__classes_per_party": 3, "train__rounds": 2}
    (trial,), (rows,) = trained(settings("fedper", **changes))
    own = rows[-1]["accuracy_by_party"]
    assert len(own) == 4
    assert rows[-1]["accuracy"] == pytest.approx(sum(own) / 4)
    (plain,), (global_rows,) = trained(settings("fedavg", **changes))
    assert min(own) > max(row["accuracy"] for row in global_rows), "three classes are easier than ten"
    assert plain.evaluation is not None
    assert trial.evaluation is not None
    assert trial.evaluation["accuracy"] == rows[-1]["accuracy"]


def test_a_natural_party_is_judged_on_its_own_test_rows():
    data = some_digits()
    data = replace(data, party=torch.arange(160) % 2, party_names=("a", "b"), test_party=torch.arange(60) % 2)
    config = settings("fedper", data__partition="natural", data__parties=2, train__rounds=1)
    (trial,), (rows,) = trained(config, data=data)
    assert trial.evaluation is not None
    by_party = trial.evaluation["by_party"]
    assert rows[-1]["accuracy_by_party"] == [by_party["a"]["accuracy"], by_party["b"]["accuracy"]]


def test_a_rule_that_keeps_all_that_is_trained_is_refused():
    """A linear probe: the encoder is frozen, so the output layer is all there is to share."""

    class Frozen(torch.nn.Module):
        def __init__(self, shape: tuple[int, ...]) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(64, 8).requires_grad_(False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x.flatten(1))

    config = settings("fedper", model__model="auto", model__projection=0)
    with pytest.raises(UserError, match=r"fedper keeps all trained weights of this network at the parties.*use --algo"):
        set_up([config], data=some_digits(), custom=custom_encoder(Frozen))


@pytest.mark.parametrize("server", ["median", "trimmed-mean", "fedavgm"])
def test_statistics_that_stay_at_the_parties_are_in_the_servers_model_too_and_never_move(server):
    trial = run_one(settings(f"fedbn+{server}", model__norm="batch", train__rounds=3))
    start = trial.spec.init_model("model")
    assert list(trial.state.model.buffers) == list(start.buffers)
    assert all(torch.equal(v, start.buffers[k]) for k, v in trial.state.model.buffers.items())


@pytest.mark.parametrize("engine", ENGINES)
def test_gamma_compares_the_partys_own_model_before_and_after_its_steps(engine, float64):
    """With a vanishing learning rate nothing moves, so gamma is 1, also after rounds that moved the private tensors."""
    config = settings("fedper", train__rounds=3, run__gamma=True)
    (trial,), _ = trained(config, engine)
    still = replace(trial.spec, config=resolve(settings("fedper", train__lr=1e-30, run__gamma=True), some_digits()))
    context = context_for(config, engine)
    jobs = make_jobs(replace(trial, spec=still), context)
    assert [result.gamma for result in context.engine.run_cohort(jobs)] == pytest.approx([1.0] * 4)


def test_without_layers_to_keep_a_personal_rule_says_that_it_shares_everything(caplog):
    set_up([settings("fedbn")], data=some_digits())
    assert "fedbn: its parties keep their norm layers, and mlp has none, so nothing stays" in caplog.text
    caplog.clear()
    set_up([settings("fedbn", model__norm="batch"), settings("fedper")], data=some_digits())
    assert not caplog.messages
