"""Local optimisers: AdamW is torch's on every engine, reductions hold to the bit, and SGD-only methods refuse it."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from commands import CHANGES, CRASHED, QUICK, Attempt, bits, crash_at, moonfed, refuse, rows
from custom_encoders import Reader
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_
from worlds import context_for, gap, ready, run_one, run_with, same_bits, settings, trained

from moonfed import fit
from moonfed.aggregators.fednova import FedNovaAggregator
from moonfed.core.errors import UserError
from moonfed.core.seeds import generator
from moonfed.core.types import Optim, Snapshot, as_tensor, as_tensors
from moonfed.data.augment import gather
from moonfed.data.batches import BatchPlan
from moonfed.data.dataset import Dataset
from moonfed.engines import ENGINES, EngineOptions, Job
from moonfed.engines.local_optimizer import OPTIMIZERS, AdamW
from moonfed.engines.stacked.stacked_engine import Stacked
from moonfed.training.config import make_config
from moonfed.training.network import build
from moonfed.training.registry import ALGORITHMS, SERVERS, preset_of
from moonfed.training.runner import make_jobs
from moonfed.training.settings import TrainSettings

LR, DECAY = 0.003, 0.1
SGD_ONLY = {"fedcm", "fednova", "fedrep", "scaffold", "scaffold-niid"}
ANY_OPTIMIZER = sorted(set(ALGORITHMS) - SGD_ONLY)


def adamw(algorithm: str = "fedavg", **changes: Any) -> Any:
    """The tests' small config, with AdamW."""
    return settings(algorithm, train__optimizer="adamw", train__lr=LR, train__weight_decay=DECAY, **changes)


def train_with_torch(model: torch.nn.Module, data: Dataset, job: Job) -> Snapshot:
    """Train a party with torch's own AdamW and, where it is asked for, torch's own clipping."""
    net = copy.deepcopy(model).requires_grad_(True).train()
    net.load_state_dict(job.state.model.weights | job.state.model.buffers)
    optimizer = torch.optim.AdamW(net.parameters(), job.lr, weight_decay=job.weight_decay)
    for batch in zip(*job.plan, strict=True):
        x, y = gather(data, BatchPlan(*batch), next(net.parameters()).dtype)
        optimizer.zero_grad()
        cross_entropy(net(x).logits, y).backward()
        if job.max_grad_norm:
            clip_grad_norm_(net.parameters(), job.max_grad_norm)
        optimizer.step()
    return Snapshot({k: v.detach() for k, v in net.named_parameters()}, dict(net.named_buffers()))


@pytest.mark.parametrize("engine", sorted(ENGINES))
@pytest.mark.parametrize("lanes", [0, 1])
@pytest.mark.parametrize("limit", [0.0, 0.6])
def test_a_round_of_adamw_is_torchs_with_and_without_clipping(float64: None, engine: str, lanes: int, limit: float):
    config = settings("fedavg", train__epochs=2, model__norm="batch")
    context, (trial,) = ready(config, engine)
    changes: dict[str, Any] = {"lr": LR, "weight_decay": DECAY, "max_grad_norm": limit, "optimizer": AdamW()}
    jobs = [replace(job, **changes) for job in make_jobs(trial, context)]
    data, model = context.data, build(trial.spec.network)
    results = ENGINES[engine](context.nets, data, EngineOptions(lanes=lanes)).run_cohort(jobs)
    for job, result in zip(jobs, results, strict=True):
        expected = train_with_torch(model, data, job)
        ours = {k: v + job.state.model.weights[k] for k, v in result.upload.delta.items()}
        assert gap(ours, {k: expected.weights[k] for k in ours}) < 1e-9
        assert gap(ours, job.state.model.weights) > LR


def test_many_steps_of_adamw_in_float32_are_torchs_to_rounding():
    """The corrections 1 - b^t lose no digits in float32, neither at the first step nor after thousands."""
    torch.manual_seed(0)
    weight = torch.randn(50)
    theirs = weight.clone().requires_grad_()
    optimizer = torch.optim.AdamW([theirs], LR, weight_decay=DECAY)
    ours, optimiser = {"w": weight}, AdamW()
    state, optim = optimiser.init(ours), Optim(*torch.tensor([LR, 0.0, DECAY, 0.0]))
    for _ in range(3000):
        grad = torch.randn(50) + 0.1 * weight
        theirs.grad = grad
        optimizer.step()
        ours, state = optimiser.step(ours, {"w": grad}, state, optim)
        assert torch.allclose(ours["w"], theirs.detach(), rtol=1e-5, atol=2e-5)
    assert float(as_tensor(state, "updates")) == 3000
    second = optimizer.state[theirs]["exp_avg_sq"]
    assert torch.allclose(as_tensors(state, "second_moment")["w"], second, rtol=1e-5)


def test_the_state_of_an_optimiser_has_the_names_that_it_declares():
    weights = {"a": torch.ones(2), "b": torch.ones(3)}
    optim = Optim(*torch.full((4,), 0.5))
    for optimizer in OPTIMIZERS.values():
        state = optimizer.init(weights)
        assert tuple(state) == optimizer.slots
        after, later = optimizer.step(weights, weights, state, optim)
        assert tuple(later) == optimizer.slots
        assert list(after) == list(weights)
        assert hash(optimizer) == hash(copy.copy(optimizer)), "part of the key by which jobs share a stack"


def test_jobs_of_different_optimisers_share_a_call_but_no_stack(float64: None):
    config = settings("fedavg")
    context, (trial,) = ready(config, "stacked")
    plain = make_jobs(trial, context)
    both = [*plain, *(replace(job, optimizer=AdamW(), lr=LR) for job in plain)]
    alone = context_for(config).engine.run_cohort(both)
    for one, two in zip(alone, context.engine.run_cohort(both), strict=True):
        assert gap(one.upload.delta, two.upload.delta) < 1e-10


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("name", ANY_OPTIMIZER)
def test_stacked_equals_sequential_with_adamw(float64: None, name: str, norm: str):
    config = adamw(name, model__model="cnn", model__norm=norm, train__rounds=2, cohort__fraction=0.75)
    (one,), (rows_one,) = trained(config, "sequential")
    (two,), (rows_two,) = trained(config, "stacked")
    # AdamW divides by the root of squared gradients: where those are near 0, rounding grows by up to 1 / epsilon.
    assert gap((one.state, one.memory), (two.state, two.memory)) < 1e-7
    for a, b in zip(rows_one, rows_two, strict=True):
        assert a["losses"] == pytest.approx(b["losses"], abs=1e-7)


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("name", ["moon", "solo"])
def test_a_party_that_pauses_keeps_its_moments_and_its_count(float64: None, name: str, lanes: int):
    config = adamw(name, train__rounds=2, train__epochs=3, data__parties=5)
    few = run_with(config, lambda nets, data: Stacked(nets, data, EngineOptions(lanes=lanes)))
    alone = run_one(config)
    assert gap((few.state, few.memory), (alone.state, alone.memory)) < 1e-9


@pytest.mark.parametrize("engine", sorted(ENGINES))
@pytest.mark.parametrize(("name", "zero"), [("moon", "mu"), ("moon-l2", "mu"), ("fedprox", "mu")])
def test_with_weight_zero_every_method_is_fedavg_to_the_bit_with_adamw_too(name: str, zero: str, engine: str):
    plain = run_one(adamw("fedavg"), engine)
    reduced = run_one(adamw(name, **{f"algorithm__{zero}": 0.0}), engine)
    assert same_bits(plain.state.model, reduced.state.model)


def test_solo_keeps_moments_and_count_from_round_to_round_and_fedavg_starts_anew():
    (trial,), _ = trained(adamw("solo", train__rounds=3))
    for party, memory in trial.memory.items():
        steps = 3 * (len(trial.spec.parts[party]) // 8)
        assert float(as_tensor(memory, "updates")) == steps
        assert tuple(memory) == ("model", *AdamW.slots)
    (plain,), _ = trained(settings("solo"))
    assert {tuple(memory) for memory in plain.memory.values()} == {("model", "velocity")}, "as on disk before"
    assert run_one(adamw("fedavg")).memory == {}


@pytest.mark.parametrize("algorithm", ["moon", "solo", "centralised"])
def test_adamw_resumed_is_adamw_never_interrupted(algorithm: str, tmp_path: Path):
    asked = ["run", *QUICK, "--optimizer", "adamw", "--algorithm", algorithm, "--out"]
    for rounds in ("1", "2", "4"):
        assert moonfed(*asked, tmp_path / "later", "--rounds", rounds, "--resume").code == 0
    assert moonfed(*asked, tmp_path / "at once", "--rounds", "4").code == 0
    assert bits(tmp_path / "later") == bits(tmp_path / "at once")
    plain = [word if word != "adamw" else "sgd" for word in asked]
    assert moonfed(*plain, tmp_path / "sgd", "--rounds", "4").code == 0
    assert bits(tmp_path / "sgd") != bits(tmp_path / "at once")


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_killed_under_a_schedule_and_resumed_is_never_interrupted(schedule: str, tmp_path: Path):
    asked = ["run", *QUICK, "--optimizer", "adamw", "--algorithm", "solo", "--lr-schedule", schedule, "--rounds", "4"]
    asked += ["--resume", "--out"]
    assert moonfed(*asked, tmp_path / "whole").code == 0
    for change in (40, 60):  # of the disk, in the second round and in the third
        folder = tmp_path / str(change)
        assert Attempt(*asked, folder, prepare=crash_at, given=(change, CHANGES)).end().code == CRASHED
        assert 1 <= len(rows(folder)) < 4
        assert moonfed(*asked, folder).code == 0
        assert bits(folder) == bits(tmp_path / "whole")


def test_the_setting_names_the_optimisers_that_there_are():
    assert get_args(TrainSettings.model_fields["optimizer"].annotation) == tuple(OPTIMIZERS)


@pytest.mark.parametrize("server", sorted(SERVERS))
@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_methods_that_presume_sgd_refuse_adamw_by_name_and_no_others_do(name: str, server: str):
    values: dict[str, Any] = {"algorithm": {"name": name, "server": server}}
    try:
        make_config(values)
    except UserError:
        return  # these rules do not fit each other with SGD either
    if name in SGD_ONLY - {"fednova"} or preset_of(name, server).aggregator is FedNovaAggregator:
        with pytest.raises(UserError, match=rf"^{name}\+{server} needs --optimizer sgd, got adamw: "):
            make_config(values | {"train": {"optimizer": "adamw"}})
    else:
        assert make_config(values | {"train": {"optimizer": "adamw"}}).train.optimizer == "adamw"


def test_what_does_not_fit_an_optimiser_is_refused_in_one_line(tmp_path: Path):
    refusal = refuse(tmp_path, "run", "--algorithm", "scaffold", "--optimizer", "adamw")
    assert "scaffold needs --optimizer sgd, got adamw: its control variates are the mean gradients" in refusal
    refusal = refuse(tmp_path, "run", "--optimizer", "adamw", "--momentum", "0.5")
    assert "--momentum is for --optimizer sgd, adamw has moments of its own; omit --momentum" in refusal
    assert "did you mean adamw?" in refuse(tmp_path, "run", "--optimizer", "adam")
    with pytest.raises(
        UserError, match=r"^momentum is for optimizer sgd, adamw has moments of its own; omit momentum$"
    ):
        fit("mlp", "digits", optimizer="adamw", momentum=0.9, progress=False)


def test_adamw_has_a_learning_rate_of_its_own_unless_one_is_given():
    assert make_config({}).train.lr == 0.01
    chosen = make_config({"train": {"optimizer": "adamw"}})
    assert (chosen.train.lr, chosen.train.momentum) == (0.001, 0.0)
    assert make_config({"train": {"optimizer": "adamw", "lr": 0.01}}).train.lr == 0.01
    again = make_config(chosen.model_dump())
    assert again == chosen, "recorded settings are read again, and sent to sites"
    assert again.identity == chosen.identity != make_config({}).identity


def marked_texts(rows: int = 800, length: int = 32, words: int = 40) -> Dataset:
    """Texts of random words with one of two marker words somewhere, which decides the class."""
    rng = generator(0, "tests", "markers")
    count = rows + 300
    texts, labels = rng.integers(4, words + 1, size=(count, length)), rng.integers(0, 2, size=count)
    texts[np.arange(count), rng.integers(0, length, size=count)] = 1 + labels
    x, y = torch.from_numpy(texts), torch.from_numpy(labels)
    return Dataset("markers", x[:rows], y[:rows], x[rows:], y[rows:], 2, words=words, encoder="text", batch=16)


@pytest.mark.trains
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_transformer_that_stays_at_chance_with_sgd_learns_with_adamw(seed: int):
    accuracy: dict[str, float] = {}
    for name in ("sgd", "adamw"):
        size: dict[str, Any] = {"parties": 2, "rounds": 4, "epochs": 2, "partition": "iid"}
        result = fit(lambda shape: Reader(40, 32), marked_texts(), optimizer=name, seeds=seed, progress=False, **size)
        accuracy[name] = result.rows[-1]["accuracy"] or 0.0
    assert accuracy["sgd"] < 0.65 < 0.9 < accuracy["adamw"]
