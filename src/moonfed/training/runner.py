"""Who trains the cohorts of a round: an engine in this process, or others that answer the same call."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from moonfed.core.phase import Query
from moonfed.core.types import Tensors
from moonfed.data.batches import BatchPlan, draw_plan, probe_plan
from moonfed.engines import Job, JobResult
from moonfed.engines.companions import run_with_companions
from moonfed.engines.devices import is_gpu
from moonfed.engines.local_optimizer import OPTIMIZERS
from moonfed.engines.party_round import first_memory
from moonfed.engines.query import sum_query
from moonfed.training.cohort import Cohort, Participant
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
            plans: Sequence[BatchPlan | None] = ahead.result() if ahead is not None else [None] * len(cohort)
            jobs += [make_job(trial, self.context, who, plan) for who, plan in zip(cohort, plans, strict=True)]
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
        return [party_plan(spec, self.context, who, round) for who in spec.cohorts.cohort(round)]


def make_job(trial: Trial, context: RunContext, who: Participant, plan: BatchPlan | None = None) -> Job:
    """Prepare a party's round: the batches of its steps, unless they are drawn already, and its memory."""
    spec, train, party = trial.spec, trial.config.train, who.party
    info = spec.infos[party]
    local, optimizer = trial.algorithm.local, OPTIMIZERS[train.optimizer]
    if plan is None:
        plan = party_plan(spec, context, who, trial.round)
    state = trial.algorithm.aggregator.send(trial.state, info)
    if party in trial.memory:
        memory = trial.memory[party]
    else:
        memory = first_memory(local, optimizer, state, info, spec.init_model, spec.private)
    probe = probe_plan(spec.parts[party], train.batch, context.data.augmentation) if trial.config.run.gamma else None
    rates = (round_lr(train, trial.round), train.momentum, train.weight_decay)
    when, peers = (trial.round, *rates), spec.cohorts.peers(party, trial.round)
    return Job(info, local, state, memory, plan, *when, probe, train.max_grad_norm, optimizer, spec.private, peers)


def make_jobs(trial: Trial, context: RunContext) -> list[Job]:
    """Prepare the cohort of a trial's next round."""
    return [make_job(trial, context, who) for who in trial.spec.cohorts.cohort(trial.round)]


def party_plan(spec: TrialSpec, context: RunContext, who: Participant, round: int) -> BatchPlan:
    """Draw the batches of a party's round: they depend on the seed alone."""
    train = spec.config.train
    work = (train.epochs, train.batch, context.data.augmentation, who.work)
    return draw_plan(spec.config.run.seed, round, who.party, spec.parts[who.party], *work)
