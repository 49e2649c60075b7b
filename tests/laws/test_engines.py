"""Every engine gives what the sequential one gives, for every algorithm and every kind of normalisation."""

import logging
from dataclasses import replace

import pytest
import torch
from worlds import context_for, gap, run_one, settings, some_digits, some_sounds, some_texts, trained

from moonfed.data.dataset import Augmentation
from moonfed.engines import EngineOptions, pick_engine
from moonfed.engines.cpu_workers import CpuWorkers
from moonfed.engines.stacked.stacked_engine import Stacked
from moonfed.training.registry import ALGORITHMS
from moonfed.training.resolve import resolve
from moonfed.training.runner import make_jobs
from moonfed.training.trial import new_trial

NORMS = ["none", "group", "batch"]
ANY_NETWORK = sorted(name for name, preset in ALGORITHMS.items() if not preset.aggregator.reorders_units)


@pytest.mark.parametrize(
    ("name", "norm"), [(k, norm) for k in sorted(ALGORITHMS) for norm in NORMS if norm != "group" or k in ANY_NETWORK]
)
def test_stacked_equals_sequential(float64, name, norm):
    config = settings(name, model__model="cnn", model__norm=norm, train__rounds=2, cohort__fraction=0.75)
    (one,), (rows_one,) = trained(config, "sequential")
    (two,), (rows_two,) = trained(config, "stacked")
    assert len({len(part) // 8 for part in one.spec.parts}) > 1 or name == "centralised", (
        "lanes should differ in length"
    )
    assert gap((one.state, one.memory), (two.state, two.memory)) < 1e-10
    for a, b in zip(rows_one, rows_two, strict=True):
        assert a["losses"] == pytest.approx(b["losses"], abs=1e-10)
        assert a["accuracy"] == b["accuracy"]


@pytest.mark.parametrize("name", ANY_NETWORK)
def test_stacked_equals_sequential_for_a_resnet_with_batchnorm(float64, name):
    config = settings(name, model__model="resnet8", train__rounds=2, data__parties=3)
    one, two = (run_one(config, engine) for engine in ("sequential", "stacked"))
    assert any("running_mean" in key for key in one.state.model.buffers)
    assert gap((one.state, one.memory), (two.state, two.memory)) < 1e-9


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["moon", "fedprox", "scaffold"])
@pytest.mark.parametrize(("encoder", "data"), [("text", some_texts()), ("sound", some_sounds())])
def test_stacked_equals_sequential_for_texts_and_audio(float64, caplog, encoder, data, name, norm):
    config = settings(name, model__model=encoder, model__norm=norm, train__rounds=2)
    one = run_one(config, "sequential", data)
    with caplog.at_level(logging.INFO, "moonfed.engines"):
        two = run_one(config, "stacked", data)
    assert gap((one.state, one.memory), (two.state, two.memory)) < 1e-10
    assert not [r for r in caplog.records if r.name.startswith("moonfed.engines")], "the parties trained in one stack"


@pytest.mark.trains
@pytest.mark.parametrize(("encoder", "data"), [("text", some_texts(600)), ("sound", some_sounds(600))])
def test_texts_and_audio_are_learnt(encoder, data):
    config = settings("moon", model__model=encoder, data__partition="iid", train__epochs=6, train__lr=0.01)
    _, (rows,) = trained(config, "stacked", data)
    blind = float(torch.bincount(data.test_labels).max() / len(data.test_labels))
    assert rows[-1]["accuracy"] > 0.8 > blind + 0.1, "better than naming the most frequent class"


@pytest.mark.parametrize("name", ["moon", "scaffold", "solo"])
def test_trials_that_share_a_stack_do_not_affect_each_other(float64, name):
    configs = [settings(name, run__seed=seed, train__rounds=2) for seed in (0, 1, 2)]
    together, _ = trained(configs, "stacked")
    for config, trial in zip(configs, together, strict=True):
        alone = run_one(config)
        assert gap((alone.state, alone.memory), (trial.state, trial.memory)) < 1e-10


def test_a_grid_of_float_settings_runs_as_one_stack(float64):
    grid = [settings("moon", algorithm__mu=mu, algorithm__temperature=t) for mu, t in ((0.1, 0.5), (1, 0.1), (5, 1))]
    grid += [settings("moon", train__lr=0.01, train__momentum=0.5, train__weight_decay=1e-3)]
    together, _ = trained(grid, "stacked")
    for config, trial in zip(grid, together, strict=True):
        assert gap(run_one(config).state, trial.state) < 1e-10
    assert gap(together[0].state, together[1].state) > 1e-4


def test_different_algorithms_in_one_group_have_separate_stacks(float64):
    group = [settings(name, train__rounds=2) for name in ("fedavg", "moon", "fedprox", "solo", "centralised")]
    together, _ = trained(group, "stacked")
    for config, trial in zip(group, together, strict=True):
        alone = run_one(config)
        assert gap((alone.state, alone.memory), (trial.state, trial.memory)) < 1e-10


@pytest.mark.parametrize(
    "augmentation",
    [Augmentation(pad=1, flip=True), Augmentation(pad=2, reflect=True), Augmentation(pad=1, rotate=15.0)],
)
def test_engines_see_the_same_augmented_rows(float64, augmentation):
    data = replace(some_digits(), augmentation=augmentation)
    config = settings("moon", train__rounds=2)
    one, two = (run_one(config, engine, data) for engine in ("sequential", "stacked"))
    assert gap(one.state, two.state) < 1e-10
    assert gap(one.state, run_one(config).state) > 1e-4


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "moon"])
def test_both_engines_measure_the_same_gamma(float64, name):
    config = settings(name, run__gamma=True, train__rounds=2)
    (_, (rows_one,)), (_, (rows_two,)) = (trained(config, engine) for engine in ("sequential", "stacked"))
    for a, b in zip(rows_one, rows_two, strict=True):
        assert a["gamma"] == pytest.approx(b["gamma"], rel=1e-9)
        assert all(value > 0 for value in a["gamma"].values())


def test_partial_work_ends_each_lane_at_its_own_step(float64):
    config = settings("fednova", cohort__stragglers=0.5, train__epochs=4)
    one, two = (run_one(config, engine) for engine in ("sequential", "stacked"))
    assert gap(one.state, two.state) < 1e-10


def test_a_lane_longer_than_a_chunk_sees_every_step_of_its_plan():
    config = resolve(settings("fedavg", train__epochs=9, data__parties=2), some_digits())
    for engine in ("sequential", "stacked"):
        bench = context_for(config, engine)
        trial = new_trial(config, bench)
        jobs = make_jobs(trial, bench)
        job_rows = [len(part) for part in trial.spec.parts]
        for job, done in zip(jobs, bench.engine.run_cohort(jobs), strict=True):
            assert len(done.losses["supervised"]) == done.upload.steps == 9 * (job_rows[job.party] // 8) > 32


@pytest.mark.parametrize(("encoder", "lanes"), [("cnn", 0), ("resnet18", 1)])
def test_auto_stacks_small_nets_and_trains_large_ones_one_after_the_other(encoder, lanes):
    bench = context_for(settings("fedavg", model__model=encoder), data=some_digits(600))
    engine = pick_engine("auto", bench.nets, bench.data, EngineOptions())
    stacked = engine.engine if isinstance(engine, CpuWorkers) else engine
    assert isinstance(stacked, Stacked)
    assert stacked.options.lanes == lanes


@pytest.mark.parametrize("name", ["moon", "scaffold", "fedprox"])
def test_a_natural_party_smaller_than_a_batch_trains_as_the_sequential_engine_does(float64, name):
    data = some_digits(200)
    party = torch.where(torch.arange(200) < 12, torch.arange(200) % 3, 3)  # three parties of four rows, one of 188
    data = replace(data, party=party, party_names=("a", "b", "c", "d"), test_party=None)
    config = settings(name, data__partition="natural", data__parties=4, train__batch=16)
    (one,), _ = trained(config, "sequential", data=data)
    (two,), _ = trained(config, "stacked", data=data)
    assert one.failure is None
    assert gap((one.state, one.memory), (two.state, two.memory)) < 1e-9
