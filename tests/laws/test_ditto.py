"""Ditto: FedAvg's model to the bit, and beside it a model of each party between training alone and the global one."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from commands import QUICK, bits, moonfed
from worlds import context_for, gap, ready, run, run_one, same_bits, settings, step_context, trained

from moonfed import fit, load
from moonfed.algorithms.ditto import DittoLocal, DittoPersonalLocal
from moonfed.algorithms.solo import SoloAggregator, SoloLocal
from moonfed.core.algorithm import Preset
from moonfed.core.files import read_tensors
from moonfed.core.rules import LocalRule
from moonfed.core.tree import union
from moonfed.core.types import Outputs, Slots, Snapshot, State, as_snapshot
from moonfed.engines.companions import companion_job, merge, run_with_companions
from moonfed.training.registry import ALGORITHMS
from moonfed.training.resolve import resolve
from moonfed.training.runner import make_jobs
from moonfed.training.trial import Trial, new_trial

ENGINES = ("sequential", "stacked")


def own_models(trial: Trial) -> list[Snapshot]:
    return [as_snapshot(slots, "personal") for _, slots in sorted(trial.memory.items())]


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("engine", ENGINES)
def test_the_global_model_and_what_travels_are_fedavgs_to_the_bit(engine, norm):
    changes = {"model__norm": norm, "cohort__fraction": 0.75}
    ((plain,), (rows,)), ((ditto,), (own,)) = (trained(settings(n, **changes), engine) for n in ("fedavg", "ditto"))
    assert same_bits(plain.state, ditto.state)
    for one, two in zip(rows, own, strict=True):
        assert one["accuracy"] == two["global_accuracy"]
        assert [one[k] for k in ("bytes_up", "bytes_down", "steps")] == [
            two[k] for k in ("bytes_up", "bytes_down", "steps")
        ]
        assert one["losses"]["supervised"] == two["losses"]["supervised"]
        assert set(two["losses"]) == {"supervised", "personal/supervised", "personal/proximal"}


@dataclass(frozen=True)
class AloneLocal(SoloLocal):
    """SOLO from the first global model, with a new optimiser every round."""

    keeps_optimizer = False

    def init_memory(self, state, info, init_model) -> Slots:
        return {"model": state.model}


@pytest.mark.parametrize("engine", ENGINES)
def test_without_pull_a_party_trains_alone_to_the_bit(engine, monkeypatch):
    monkeypatch.setitem(ALGORITHMS, "alone", Preset("alone", AloneLocal, SoloAggregator))
    alone = run_one(settings("alone", model__norm="batch"), engine)
    ditto = run_one(settings("ditto", model__norm="batch", algorithm__pull=0.0), engine)
    assert same_bits([as_snapshot(slots, "model") for _, slots in sorted(alone.memory.items())], own_models(ditto))
    pulled = run_one(settings("ditto", model__norm="batch", algorithm__pull=1.0), engine)
    assert gap(own_models(pulled), own_models(ditto)) > 1e-4


def test_where_pull_times_lr_is_one_a_step_ends_at_the_global_model_minus_lr_times_the_gradient(float64):
    """v - lr (g(v) + lambda (v - w)) = w - lr g(v), and v - lr g(v) is a plain step from v."""
    lr = 0.05
    config = settings("ditto", algorithm__pull=1 / lr, train__lr=lr, train__momentum=0.0, train__rounds=2)
    context, trials = ready(config)
    (trial,), _ = run(trials, context)
    for job in make_jobs(trial, context):
        one_step = replace(job, plan=type(job.plan)(*(part[:1] for part in job.plan)))
        own = as_snapshot(job.memory, "personal")
        plain_job = replace(one_step, local=StartingAt(), memory={"start": own})
        plain = context.engine.run_cohort([plain_job])[0].upload.delta  # of v - lr g(v) to w
        (result,) = run_with_companions(context.engine, [one_step])
        received = job.state.model.weights
        after = as_snapshot(result.memory, "personal").weights
        expected = {k: w + (w + plain[k] - own.weights[k]) for k, w in received.items()}
        assert gap(after, expected) < 1e-12
        assert gap(after, own.weights) > 1e-4


@dataclass(frozen=True)
class StartingAt(LocalRule):
    """Plain training from a remembered model."""

    def start(self, state, memory):
        return as_snapshot(memory, "start")


def test_a_strong_pull_leaves_the_personal_model_at_the_global_one_that_was_received():
    """With lr lambda = 1 the distance is lr times a gradient: below lr here; without a pull it is ten times that."""
    distances: list[float] = []
    for lr, pull in ((1e-2, 1e2), (1e-4, 1e4), (1e-4, 0.0)):
        config = settings("ditto", algorithm__pull=pull, train__lr=lr, train__momentum=0.0, train__weight_decay=0.0)
        context, (trial,) = ready(config)
        (after,), _ = run([trial], context)
        jobs = make_jobs(after, context)
        results = run_with_companions(context.engine, jobs)
        ends = [as_snapshot(result.memory, "personal").weights for result in results]
        distances.append(max(gap(end, job.state.model.weights) for end, job in zip(ends, jobs, strict=True)))
    assert distances[0] < 1e-2
    assert distances[1] < 1e-4 < 2e-4 < distances[2]


def test_the_loss_of_the_personal_model_is_the_hand_computed_one():
    """Even scores of two classes: log 2. v = (3, 1), w = (1, 0): 0.5/2 (4 + 1) = 1.25, gradient 0.5 (v - w)."""
    v = torch.tensor([3.0, 1.0], requires_grad=True)
    state = State(Snapshot({"w": torch.tensor([1.0, 0.0])}, {}), {}, {})
    out = Outputs(torch.zeros(1, 2), torch.zeros(1, 2), torch.zeros(1, 2))
    rule = DittoLocal(pull=0.5).companion
    parts = rule.loss(out, torch.tensor([0]), step_context({"w": v}, state=state))
    assert float(parts["supervised"]) == pytest.approx(0.693147, abs=1e-6)
    assert float(parts["proximal"].detach()) == pytest.approx(1.25)
    (grad,) = torch.autograd.grad(parts["proximal"], v)
    assert grad.tolist() == pytest.approx([1.0, 0.5])


def test_a_party_that_never_took_part_has_the_global_model():
    trial = run_one(settings("ditto", cohort__fraction=0.25, train__rounds=1))
    models = trial.personal_models()
    (present,) = trial.memory
    assert set(models) == {0, 1, 2, 3}
    assert all(same_bits(model, trial.state.model) for party, model in models.items() if party != present)
    assert gap(models[present], trial.state.model) > 1e-4


def test_a_grid_of_pulls_runs_as_one_stack(float64):
    grid = [settings("ditto", algorithm__pull=pull) for pull in (0.0, 0.1, 2.0)]
    together, _ = trained(grid, "stacked")
    for config, trial in zip(grid, together, strict=True):
        assert gap(own_models(run_one(config)), own_models(trial)) < 1e-10


def test_a_companion_shares_batches_state_and_memory_and_slots_of_both_are_refused():
    context, (trial,) = ready(settings("ditto", run__gamma=True))
    job = make_jobs(trial, context)[0]
    beside = companion_job(job)
    assert beside is not None
    assert job.probe is not None
    assert beside.probe is None, "gamma is that of the model which is uploaded"
    assert isinstance(beside.local, DittoPersonalLocal)
    assert all(getattr(beside, k) is getattr(job, k) for k in ("plan", "state", "memory"))
    assert companion_job(beside) is None
    with pytest.raises(TypeError, match="both use the name model"):
        union({"model": torch.zeros(())}, {"model": torch.zeros(()), "count": torch.zeros(())})


def test_resumed_is_never_interrupted(place: Path):
    asked = ["run", *QUICK, "--algorithm", "ditto", "--pull", "0.5", "--fraction", "0.5", "--out"]
    for rounds in ("1", "2", "4"):
        assert moonfed(*asked, "later", "--rounds", rounds, "--resume").code == 0
    assert moonfed(*asked, "at once", "--rounds", "4").code == 0
    assert bits(place / "later") == bits(place / "at once")


def test_the_global_model_is_kept_beside_the_personal_ones_and_is_fedavgs(place: Path):
    for name in ("ditto", "fedavg"):
        assert moonfed("run", *QUICK, "--rounds", "2", "--algorithm", name, "--out", name).code == 0
    kept, plain = (read_tensors(place / name / "final.safetensors")[0] for name in ("ditto", "fedavg"))
    assert all(torch.equal(kept[f"global/{k}"], value) for k, value in plain.items())
    both = [load(place / name).state_dict() for name in ("ditto", "fedavg")]
    assert all(torch.equal(value, both[1][k]) for k, value in both[0].items())
    assert not torch.equal(load(place / "ditto", party=0).model.head.weight, load(place / "ditto").model.head.weight)
    assert {"global", "0", "1"} <= set(fit("mlp", "digits", "ditto", parties=2, rounds=1, epochs=1).runs[0].models)


def test_a_companions_time_is_charged_to_its_party():
    config = settings("ditto", data__parties=2)
    context = context_for(config)
    trial = new_trial(resolve(config, context.data), context)
    job = make_jobs(trial, context)[0]
    first, beside = (replace(context.engine.run_cohort([job])[0], seconds=seconds) for seconds in (1.0, 0.5))
    assert merge(first, beside).seconds == 1.5
