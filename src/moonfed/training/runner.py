"""Who trains the cohorts of a round: parties that are computed here, or others that answer the same call."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from moonfed.data.batches import BatchPlan, draw_plan, probe_plan
from moonfed.engines import Job, JobResult
from moonfed.training.cohort import Participant
from moonfed.training.trial import RunContext, Trial


class CohortRunner(Protocol):
    """Trains cohorts: an engine in this process, or sites at the other end of a wire."""

    def train(self, trials: Sequence[Trial]) -> list[dict[int, JobResult]]:
        """Train the cohort of each trial's next round; a party without a usable result is left out."""
        ...


class LocalRunner:
    """Parties whose rows are in this process: an engine trains them all."""

    def __init__(self, bench: RunContext, pool: ThreadPoolExecutor) -> None:
        self.bench, self.pool = bench, pool
        self.ahead: dict[int, Future[list[BatchPlan]]] = {}

    def train(self, trials: Sequence[Trial]) -> list[dict[int, JobResult]]:
        """Train the cohort of each trial's next round."""
        seats = [trial.cohorts.seats(trial.round) for trial in trials]
        jobs: list[Job] = []
        for trial, own in zip(trials, seats, strict=True):
            plans = self.ahead.pop(id(trial), None)
            drawn = plans.result() if plans is not None else draw_plans(trial, self.bench, trial.round)
            jobs += [make_job(trial, self.bench, seat, plan) for seat, plan in zip(own, drawn, strict=True)]
        if trials[0].device.type == "cuda":  # a GPU does not need this processor meanwhile
            self.ahead = {id(t): self.pool.submit(draw_plans, t, self.bench, t.round + 1) for t in trials}
        done = iter(self.bench.engine.run_cohort(jobs))
        return [{seat.party: next(done) for seat in own} for own in seats]


def draw_plans(trial: Trial, bench: RunContext, round: int) -> list[BatchPlan]:
    """Draw the plans of a round's cohort: they depend on the seed alone."""
    seed, train = trial.config.run.seed, trial.config.train
    assert train.batch is not None
    work = (train.epochs, train.batch, bench.data.recipe)
    return [
        draw_plan(seed, round, seat.party, trial.parts[seat.party], *work, seat.work)
        for seat in trial.cohorts.seats(round)
    ]


def make_job(trial: Trial, bench: RunContext, seat: Participant, plan: BatchPlan) -> Job:
    """Make a party ready for a round: its memory, or a first one, and the plan of its steps."""
    train, recipe, party = trial.config.train, bench.data.recipe, seat.party
    assert train.batch is not None
    if party not in trial.memory:
        slots = trial.algorithm.local.init_memory(trial.state, trial.facts[party], trial.fresh)
    else:
        slots = trial.memory[party]
    probe = probe_plan(trial.parts[party], train.batch, recipe) if trial.config.run.gamma else None
    rates = (train.lr, train.momentum, train.weight_decay)
    return Job(party, trial.algorithm.local, trial.state, slots, plan, *rates, probe)


def make_jobs(trial: Trial, bench: RunContext) -> list[Job]:
    """Make the cohort of a trial's next round ready."""
    seats, plans = trial.cohorts.seats(trial.round), draw_plans(trial, bench, trial.round)
    return [make_job(trial, bench, seat, plan) for seat, plan in zip(seats, plans, strict=True)]
