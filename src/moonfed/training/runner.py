"""Who trains the cohorts of a round: an engine in this process, or others that answer the same call."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from moonfed.core.phase import Query
from moonfed.core.types import Tensors
from moonfed.data.batches import BatchPlan, PlanDraw, draw_plans, probe_plan
from moonfed.engines import Job, JobResult
from moonfed.engines.companions import run_with_companions
from moonfed.engines.devices import is_gpu
from moonfed.engines.local_optimizer import OPTIMIZERS
from moonfed.engines.party_round import first_memory
from moonfed.engines.query import sum_query
from moonfed.training.cohort import Cohort
from moonfed.training.evaluate import Score, score_models
from moonfed.training.lr_schedule import round_lr
from moonfed.training.trial import RunContext, Trial, TrialSpec


class CohortRunner(Protocol):
    """Trains cohorts: an engine in this process, or sites at the other end of a network."""

    def train(self, trials: Sequence[Trial], cohorts: Sequence[Cohort]) -> list[dict[int, JobResult]]:
        """Train each trial's cohort; a party without a usable result is omitted."""
        ...

    def query(self, trial: Trial, query: Query) -> Iterator[tuple[int, Tensors]]:
        """Ask all parties about a trial's global model; yields the answers by party, in order, where there is one."""
        ...

    def personal_scores(self, trial: Trial) -> Mapping[int, Score]:
        """Score the parties' own models, by party, where an algorithm trains such models."""
        ...


class LocalRunner:
    """Trains parties whose rows are in this process, all with one engine."""

    def __init__(self, context: RunContext, pool: ThreadPoolExecutor) -> None:
        self.context, self.pool = context, pool
        self.next_plans: dict[TrialSpec, Future[list[BatchPlan]]] = {}

    def train(self, trials: Sequence[Trial], cohorts: Sequence[Cohort]) -> list[dict[int, JobResult]]:
        """Train each trial's cohort."""
        jobs: list[Job] = []
        for trial, cohort in zip(trials, cohorts, strict=True):
            ahead = self.next_plans.pop(trial.spec, None)
            jobs += make_jobs(trial, self.context, cohort, None if ahead is None else ahead.result())
        if is_gpu(self.context.data.inputs.device):  # a GPU does not need this processor meanwhile
            submit = self.pool.submit
            self.next_plans = {t.spec: submit(self._draw_plans, t.spec, t.round + 1) for t in trials}
        results = iter(run_with_companions(self.context.engine, jobs))
        return [{who.party: next(results) for who in cohort} for cohort in cohorts]

    def query(self, trial: Trial, query: Query) -> Iterator[tuple[int, Tensors]]:
        """Ask all parties about a trial's global model, one after the other."""
        net, data = self.context.nets.inference, self.context.data
        for party, rows in enumerate(trial.spec.parts):
            yield party, sum_query(net, data, trial.state.model, rows, query)

    def personal_scores(self, trial: Trial) -> Mapping[int, Score]:
        """Score every party's own model on the evaluation rows; before any has one, the global model."""
        models = trial.personal_models() or {0: trial.current_model}
        return score_models(trial, self.context, models, keep_logits=trial.is_last)

    def _draw_plans(self, spec: TrialSpec, round: int) -> list[BatchPlan]:
        return cohort_plans(spec, self.context, spec.cohorts.cohort(round), round)


def make_jobs(
    trial: Trial, context: RunContext, cohort: Cohort | None = None, plans: Sequence[BatchPlan] | None = None
) -> list[Job]:
    """Prepare a cohort, that of a trial's next round by default: its parties' batches unless drawn, and memories."""
    spec, train, round = trial.spec, trial.config.train, trial.round
    cohort = spec.cohorts.cohort(round) if cohort is None else cohort
    plans = cohort_plans(spec, context, cohort, round) if plans is None else plans
    local, optimizer, send = trial.algorithm.local, OPTIMIZERS[train.optimizer], trial.algorithm.aggregator.send
    when = (round, round_lr(train, round), train.momentum, train.weight_decay)
    clip, private, gamma = train.max_grad_norm, spec.private, trial.config.run.gamma
    jobs: list[Job] = []
    for who, plan in zip(cohort, plans, strict=True):
        party, info = who.party, spec.infos[who.party]
        state = send(trial.state, info)
        if party in trial.memory:
            memory = trial.memory[party]
        else:
            memory = first_memory(local, optimizer, state, info, spec.init_model, private)
        probe = probe_plan(spec.parts[party], train.batch, context.data.augmentation) if gamma else None
        peers = spec.cohorts.peers(party, round)
        jobs.append(Job(info, local, state, memory, plan, *when, probe, clip, optimizer, private, peers))
    return jobs


def cohort_plans(spec: TrialSpec, context: RunContext, cohort: Cohort, round: int) -> list[BatchPlan]:
    """Draw the batches of a cohort's round: they depend on the seed alone."""
    train = spec.config.train
    draws = (PlanDraw(who.party, spec.parts[who.party], who.work) for who in cohort)
    return draw_plans(spec.config.run.seed, round, draws, train.epochs, train.batch, context.data.augmentation)
