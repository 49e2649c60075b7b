"""Neither processes, threads nor other trials of a command change a bit of a trial."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from worlds import context_for, gap, settings, some_digits

from moonfed.engines import EngineOptions, cpu_workers, pick_engine
from moonfed.engines.cpu_workers import CpuWorkers, can_fork, cut
from moonfed.training.loop import run_rounds
from moonfed.training.resolve import resolve
from moonfed.training.runner import make_jobs
from moonfed.training.trial import Trial, new_trial

pytestmark = pytest.mark.skipif(not can_fork(), reason="processes are forked on Linux machines without a GPU")


def trained_by(processes: int, engine: str, *configs, data=None) -> list[Trial]:
    """Run configs as one group of trials in so many processes."""
    context = context_for(configs[0], engine, data)
    workers = CpuWorkers(context.engine)
    workers.processes = processes
    context = context._replace(engine=workers)
    return run_rounds([new_trial(resolve(config, context.data), context) for config in configs], context)


def same_bits(one: Trial, two: Trial) -> bool:
    return gap((one.state, one.memory), (two.state, two.memory)) == 0.0 and list(one.state.model.weights) == list(
        two.state.model.weights
    )


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
@pytest.mark.parametrize("name", ["moon", "scaffold", "fednova", "solo", "ditto", "fedbn", "fedsam", "gossip"])
def test_the_number_of_processes_changes_no_bit(name, engine):
    config = settings(name, model__model="cnn", model__norm="batch", data__parties=5, train__rounds=2, run__gamma=True)
    one, two, three = (trained_by(n, engine, config)[0] for n in (1, 2, 3))
    assert same_bits(one, two)
    assert same_bits(one, three)


@pytest.mark.parametrize("parties", [2, 3, 5])
@pytest.mark.parametrize("name", ["moon", "centralised"])
def test_trials_in_one_command_get_the_bits_of_trials_alone(name, parties):
    def config(seed: int):
        beta = {"data__beta": 0.3, "data__floor": 8, "data__parties": parties}  # parties of unequal length
        return settings(name, model__model="cnn", run__seed=seed, train__rounds=2, train__epochs=2, **beta)

    together = trained_by(2, "stacked", *(config(seed) for seed in range(4)))
    for seed, trial in enumerate(together):
        assert same_bits(trial, trained_by(2, "stacked", config(seed))[0])


@pytest.mark.parametrize("name", ["moon", "fedavg"])
def test_a_party_with_batches_of_its_own_size_gets_the_bits_of_its_trial_alone(name):
    """A natural party with fewer rows than a batch; parties of other trials have batches of its size too."""
    data = some_digits(200)
    party = torch.where(torch.arange(200) < 12, 0, 1 + torch.arange(200) % 3)  # 12 rows, and three times about 63
    data = replace(data, party=party, party_names=("a", "b", "c", "d"), test_party=None)
    split = {"data__partition": "natural", "data__parties": 4, "train__batch": 16, "train__rounds": 2}
    configs = [settings(name, model__model="cnn", run__seed=seed, **split) for seed in range(3)]
    together = trained_by(2, "stacked", *configs, data=data)
    for config, trial in zip(configs, together, strict=True):
        assert same_bits(trial, trained_by(2, "stacked", config, data=data)[0])


@pytest.mark.parametrize("name", ["moon", "fedprox"])
def test_a_command_with_many_methods_has_wider_stacks_and_the_same_bits(name, monkeypatch):
    config = settings(name, model__model="cnn", train__rounds=2, data__beta=0.3, data__floor=8, data__parties=6)
    (narrow,) = trained_by(2, "stacked", config)
    context = context_for(config)
    jobs = make_jobs(new_trial(resolve(config, context.data), context), context)
    assert len(cut(jobs)) == 2
    monkeypatch.setattr(cpu_workers, "MANY_SHAPES", 1)
    assert [len(unit) for unit in cut(jobs)] == [6]
    assert same_bits(narrow, trained_by(2, "stacked", config)[0])


def test_a_party_much_longer_than_all_others_has_company():
    context = context_for(settings("fedavg", data__parties=4), data=some_digits(300))
    trial = new_trial(resolve(settings("fedavg", data__parties=4), context.data), context)
    jobs = make_jobs(trial, context)
    longest = max(range(4), key=lambda i: len(jobs[i].plan.rows))
    rows = [job.plan.rows for job in jobs]
    jobs = [
        replace(job, plan=job.plan._replace(rows=rows[i].repeat(20, 1) if i == longest else rows[i][:2]))
        for i, job in enumerate(jobs)
    ]
    assert [len(unit) for unit in cut(jobs)] == [2, 2]


@pytest.mark.parametrize("threads", [1, 2])
def test_the_number_of_torch_threads_changes_no_bit(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        context = context_for(settings("moon", model__model="cnn"))
        engine = pick_engine("stacked", context.nets, context.data, EngineOptions())
        assert isinstance(engine, CpuWorkers)
        assert engine.processes == threads
        config = resolve(settings("moon", model__model="cnn"), context.data)
        context = context._replace(engine=engine)
        (trial,) = run_rounds([new_trial(config, context)], context)
        assert torch.get_num_threads() == threads, "as before the run"
    finally:
        torch.set_num_threads(before)
    assert same_bits(trial, trained_by(3, "stacked", settings("moon", model__model="cnn"))[0])


def test_trials_in_threads_of_one_process_get_the_bits_of_trials_alone():
    configs = [settings("moon", run__seed=seed % 2, model__model="cnn") for seed in range(4)]
    alone = [trained_by(2, "stacked", config)[0] for config in configs[:2]]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda config: trained_by(2, "stacked", config)[0], configs))
    assert all(same_bits(trial, alone[seed % 2]) for seed, trial in enumerate(together))
