"""How a cohort is cut into slices depends on its jobs alone, and other trials change no bit of a sliced one."""

from pathlib import Path

import pytest
from commands import QUICK, bits, moonfed, refused
from worlds import context_for, run, same_bits, settings, some_digits

from moonfed.engines import EngineOptions, Job, pick_engine
from moonfed.engines.slices import Sliced, cut_slices
from moonfed.training.config import make_config
from moonfed.training.resolve import resolve
from moonfed.training.runner import make_jobs
from moonfed.training.trial import Trial, new_trial


def sliced(slices: int, *configs) -> list[Trial]:
    """Run configs as one group of trials, their cohorts cut into slices."""
    context = context_for(configs[0], data=some_digits(300))
    engine = pick_engine("stacked", context.nets, context.data, EngineOptions(slices=slices))
    assert isinstance(engine, Sliced) == (slices > 1)
    context = context._replace(engine=engine)
    trials, _ = run([new_trial(resolve(config, context.data), context) for config in configs], context)
    return trials


def jobs_of(*names: str, parties: int = 9) -> list[Job]:
    """Return the jobs of a first round of some algorithms."""
    configs = [settings(name, data__parties=parties, data__floor=4) for name in names]
    context = context_for(configs[0], data=some_digits(600))
    return [job for config in configs for job in make_jobs(new_trial(resolve(config, context.data), context), context)]


@pytest.mark.parametrize("slices", [1, 2, 3, 4, 7, 100])
def test_slices_hold_every_job_once_and_none_is_alone_of_its_kind(slices):
    jobs = jobs_of("moon", "fedavg")
    cut = cut_slices(jobs, slices)
    assert sorted(place for places in cut for place in places) == list(range(len(jobs)))
    assert 1 <= len(cut) <= slices
    for places in cut:
        kinds = [type(jobs[place].local) for place in places]
        assert all(kinds.count(kind) >= 2 for kind in kinds)
        assert places == sorted(places)


def test_a_slice_of_one_trial_is_contiguous_and_slices_are_about_equally_long():
    jobs = jobs_of("fedavg", parties=12)
    cut = sorted(cut_slices(jobs, 3))
    assert [place for places in cut for place in places] == list(range(12))
    lengths = [sum(len(jobs[place].plan.rows) for place in places) for places in cut]
    assert max(lengths) - min(lengths) <= 2 * max(len(job.plan.rows) for job in jobs)


@pytest.mark.parametrize("name", ["moon", "scaffold", "ditto"])
def test_a_trial_among_others_gets_the_bits_of_the_trial_alone(name):
    configs = [settings(name, data__parties=5, train__rounds=2, run__seed=seed) for seed in (0, 1)]
    for together, config in zip(sliced(2, *configs), configs, strict=True):
        (alone,) = sliced(2, config)
        assert same_bits((together.state, together.memory), (alone.state, alone.memory))


def test_slices_are_recorded_and_a_run_is_resumed_with_as_many(place: Path):
    asked = ["run", *QUICK, "--slices", "2", "--out"]
    assert moonfed(*asked, place / "whole", "--rounds", "2").code == 0
    assert moonfed(*asked, place / "halved", "--rounds", "1").code == 0
    line = refused(moonfed("run", *QUICK, "--out", place / "halved", "--rounds", "2", "--resume"))
    assert "run.slices was 2, now 1 (--slices 2 resumes it)" in line
    assert moonfed(*asked, place / "halved", "--rounds", "2", "--resume").code == 0
    assert bits(place / "halved") == bits(place / "whole")


def test_a_run_that_is_not_sliced_keeps_its_identity():
    assert make_config({}).run.slices == 1
    assert make_config({"run": {"slices": 1}}).identity == make_config({}).identity
    assert make_config({"run": {"slices": 2}}).identity != make_config({}).identity
