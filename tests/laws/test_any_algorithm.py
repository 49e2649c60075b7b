"""What must hold of every algorithm by itself: bits, inputs, order, pairs of rules."""

import pytest
import torch
from worlds import context_for, gap, run_one, same_bits, settings

from moonfed.core.errors import UserError
from moonfed.core.rules import LocalRule, ServerOptimizer
from moonfed.core.tree import tree_map
from moonfed.core.types import ReceivedUpload
from moonfed.engines.companions import run_with_companions
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
    before = tree_map(torch.clone, (trial.state, jobs[0].state, jobs[0].memory, jobs[0].plan))
    done = run_with_companions(bench.engine, jobs)
    server = trial.algorithm.aggregator
    for _ in range(2):
        upload = tree_map(torch.clone, (done[0].upload.delta, done[0].upload.buffers, done[0].upload.slots))
        if server.linear:
            part = server.contribute(done[0].upload, trial.spec.infos[0], 3.0)
            update = server.update(trial.state, part, trial.spec.population)
        else:
            update = server.reduce(
                trial.state, {0: ReceivedUpload(done[0].upload, 3.0, trial.spec.infos[0])}, trial.spec.population
            )
        if update is not None:
            trial.algorithm.server_optimizer.step(trial.state, update)
        assert same_bits(upload, (done[0].upload.delta, done[0].upload.buffers, done[0].upload.slots))
    assert same_bits(before, (trial.state, jobs[0].state, jobs[0].memory, jobs[0].plan))


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_parties_do_not_see_what_the_server_keeps(name):
    config = settings(name)
    context = context_for(config)
    trial = new_trial(resolve(config, context.data), context)
    assert bool(trial.state.server_state) == (name in SERVERS and trial.algorithm.server_optimizer != ServerOptimizer())
    assert all(job.state.server_state == {} for job in make_jobs(trial, context))


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_the_order_of_the_parties_does_not_matter(name, engine):
    config = settings(name)
    bench = context_for(config, engine)
    trial = new_trial(resolve(config, bench.data), bench)
    jobs = make_jobs(trial, bench)
    forth = {job.party: d for job, d in zip(jobs, bench.engine.run_cohort(jobs), strict=True)}
    back = {job.party: d for job, d in zip(jobs[::-1], bench.engine.run_cohort(jobs[::-1]), strict=True)}
    for party, done in forth.items():
        assert gap(done.upload.delta, back[party].upload.delta) < (1e-6 if engine == "stacked" else 1e-30)
    uploads, infos = {party: done.upload for party, done in forth.items()}, trial.spec.infos
    shares = {party: float(infos[party].rows) for party in uploads}
    one, other = (
        trial.algorithm.aggregate(trial.state, dict(order), shares, infos, trial.spec.population)[0]
        for order in (uploads.items(), reversed(uploads.items()))
    )
    assert gap(one, other) < 1e-5


def two_of_one_kind(name: str, server: str) -> str | None:
    """What two methods without a local rule of their own both have at the server; fedavg takes it away."""
    if "fedavg" in (name, server) or ALGORITHMS[name].local is not LocalRule or name not in SERVERS:
        return None
    both = SERVERS[name].roles & SERVERS[server].roles
    return "aggregators" if "aggregator" in both else "server optimisers" if both else None


@pytest.mark.parametrize("server", sorted(set(SERVERS) & set(ALGORITHMS)))  # short names stand for the same rules
@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_pair_of_rules_either_runs_or_is_refused_by_name(name, server):
    if (said := two_of_one_kind(name, server)) is not None:
        with pytest.raises(UserError, match=rf"{name}\+{server} names two {said}"):
            preset_of(name, server)
        return
    if ALGORITHMS[name].pooled and ALGORITHMS[server].sends_own_models:
        with pytest.raises(UserError, match=rf"{name} has all rows in one place, .*; omit \+{server}"):
            preset_of(name, server)
        return
    preset = preset_of(name, server)
    local, server_side = preset.local, preset.aggregator
    fits = local.needs == server_side.gives and server_side.needs <= local.gives
    alone = name == "solo", server_side is ALGORITHMS["solo"].aggregator
    if alone[0] != alone[1] or (alone[0] and preset.server_optimizer is not ServerOptimizer):
        fits = False  # nothing is combined, or nothing would be moved
    if (name, server) == ("fedrep", "fednova"):
        fits = False  # divided by steps in which nothing moves
    if fits and preset.server_optimizer.needs == server_side.for_optimizer:
        norm = "none" if server_side.reorders_units and "norm" in local.private else "batch"
        trial = run_one(settings(name, algorithm__server=server, train__rounds=2, model__norm=norm))
        start = trial.spec.init_model("model")
        assert [list(part) for part in trial.state.model] == [list(part) for part in start], "no tensor is lost"
    else:
        with pytest.raises(UserError, match=f"{name}\\+{server} does not fit"):
            make_algorithm(name, server, check_options(name, server, {}))
