"""What must hold of every algorithm by itself: bits, inputs, order, pairs of rules."""

import pytest
import torch
from worlds import context_for, gap, run_one, same_bits, settings

from moonfed.core.errors import UserError
from moonfed.core.tree import tree_map
from moonfed.training.registry import ALGORITHMS, SERVERS, check_options, make_algorithm, preset_of
from moonfed.training.resolve import resolve
from moonfed.training.runner import make_jobs
from moonfed.training.trial import new_trial


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_the_same_seed_gives_the_same_bits(name, engine):
    once, again = (run_one(settings(name, train__rounds=2), engine) for _ in range(2))
    assert same_bits((once.state, once.memory), (again.state, again.memory))
    other = run_one(settings(name, train__rounds=2, run__seed=1), engine)
    assert not same_bits((once.state, once.memory), (other.state, other.memory))


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_a_round_leaves_its_inputs_untouched(name, engine):
    config = settings(name, train__rounds=2, model__norm="batch")
    bench = context_for(config, engine)
    trial = new_trial(resolve(config, bench.data), bench)
    jobs = make_jobs(trial, bench)
    before = tree_map(torch.clone, (jobs[0].state, jobs[0].memory, jobs[0].plan))
    done = bench.engine.run_cohort(jobs)
    server = trial.algorithm.aggregator
    for _ in range(2):
        upload = tree_map(torch.clone, (done[0].upload.delta, done[0].upload.buffers, done[0].upload.slots))
        if server.linear:
            part = server.contribute(done[0].upload, trial.spec.infos[0], 3.0)
            update = server.update(trial.state, part, trial.spec.population)
        else:
            update = server.reduce(trial.state, {0: done[0].upload}, trial.spec.population)
        if update is not None:
            trial.algorithm.server_optimizer.step(trial.state, update)
        assert same_bits(upload, (done[0].upload.delta, done[0].upload.buffers, done[0].upload.slots))
    assert same_bits(before, (jobs[0].state, jobs[0].memory, jobs[0].plan))


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
@pytest.mark.parametrize("name", ["fedavg", "moon", "scaffold"])
def test_the_order_of_the_parties_does_not_matter(name, engine):
    config = settings(name)
    bench = context_for(config, engine)
    trial = new_trial(resolve(config, bench.data), bench)
    jobs = make_jobs(trial, bench)
    forth = {job.party: d for job, d in zip(jobs, bench.engine.run_cohort(jobs), strict=True)}
    back = {job.party: d for job, d in zip(jobs[::-1], bench.engine.run_cohort(jobs[::-1]), strict=True)}
    for party, done in forth.items():
        assert gap(done.upload.delta, back[party].upload.delta) < (1e-6 if engine == "stacked" else 1e-30)


@pytest.mark.parametrize("server", sorted(SERVERS))
@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_pair_of_rules_either_runs_or_is_refused_by_name(name, server):
    preset = preset_of(name, server)
    local, server_side = preset.local, preset.aggregator
    fits = local.needs <= server_side.gives and server_side.needs <= local.gives
    if fits:
        run_one(settings(name, algorithm__server=server, train__rounds=2))
    else:
        with pytest.raises(UserError, match=f"{name}\\+{server} does not fit"):
            make_algorithm(name, server, check_options(name, server, {}))
