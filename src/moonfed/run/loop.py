"""The only round loop: for one trial or for many that share a stack."""

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from moonfed.algorithms import ALGORITHMS
from moonfed.core.tree import add, finite, nbytes
from moonfed.core.types import Slots, Tensors, Upload
from moonfed.data.plan import Plan, draw_plan, probe_plan
from moonfed.engines import Done, Job
from moonfed.run.cohort import Seat
from moonfed.run.score import score_round
from moonfed.run.trial import Bench, Trial

Row = dict[str, Any]


@dataclass(frozen=True)
class Settled:
    """A trial's finished round: its row of the log, and the parties whose memory changed."""

    row: Row
    changed: dict[int, Slots]


def run_rounds(
    trials: Sequence[Trial],
    bench: Bench,
    commit: Callable[[Trial, Settled], None],
    after_round: Callable[[int, list[Row]], bool] = lambda round, rows: True,
) -> None:
    """Run every trial to its last round; after_round may end the loop by returning False.

    A trial that fails keeps its failure and its last good state, and the others go on.
    """
    with ThreadPoolExecutor(1) as pool:
        ahead: dict[int, Future[list[Plan]]] = {}
        while active := [t for t in trials if t.failure is None and t.round < t.config.train.rounds]:
            began = time.perf_counter()
            round = min(t.round for t in active)
            active = [t for t in active if t.round == round]
            seats = [trial.cohorts.seats(round) for trial in active]
            jobs: list[Job] = []
            for trial, own in zip(active, seats, strict=True):
                drawn = ahead.pop(id(trial)).result() if id(trial) in ahead else draw_plans(trial, bench, round)
                jobs += [make_job(trial, bench, seat, plan) for seat, plan in zip(own, drawn, strict=True)]
            if trials[0].device.type == "cuda":  # a GPU does not need this processor meanwhile
                ahead = {id(t): pool.submit(draw_plans, t, bench, round + 1) for t in active}
            done = iter(bench.engine.run_cohort(jobs))
            rows: list[Row] = []
            for trial, own in zip(active, seats, strict=True):
                settled = _settle(trial, bench, own, [next(done) for _ in own])
                if settled is None:
                    continue
                settled.row["seconds"] = round_to(time.perf_counter() - began)
                settled.row["trials_in_stack"] = len(active)
                commit(trial, settled)
                rows.append(settled.row)
            if not after_round(round + 1, rows):
                return


def draw_plans(trial: Trial, bench: Bench, round: int) -> list[Plan]:
    """Draw the plans of a round's cohort: they depend on the seed alone."""
    seed, train = trial.config.run.seed, trial.config.train
    assert train.batch is not None
    work = (train.epochs, train.batch, bench.data.recipe)
    return [
        draw_plan(seed, round, seat.party, trial.parts[seat.party], *work, seat.work)
        for seat in trial.cohorts.seats(round)
    ]


def make_job(trial: Trial, bench: Bench, seat: Seat, plan: Plan) -> Job:
    """Make a party ready for a round: its memory, or a first one, and the plan of its steps."""
    train, recipe, party = trial.config.train, bench.data.recipe, seat.party
    assert train.batch is not None
    if party not in trial.memory:
        slots = trial.algorithm.local.init_party(trial.state, trial.facts[party], trial.fresh)
    else:
        slots = trial.memory[party]
    probe = probe_plan(trial.parts[party], train.batch, recipe) if trial.config.run.gamma else None
    rates = (train.lr, train.momentum, train.weight_decay)
    return Job(party, trial.algorithm.local, trial.state, slots, plan, *rates, probe)


def make_jobs(trial: Trial, bench: Bench) -> list[Job]:
    """Make the cohort of a trial's next round ready."""
    seats, plans = trial.cohorts.seats(trial.round), draw_plans(trial, bench, trial.round)
    return [make_job(trial, bench, seat, plan) for seat, plan in zip(seats, plans, strict=True)]


def _settle(trial: Trial, bench: Bench, seats: list[Seat], done: list[Done]) -> Settled | None:
    """Take a trial's round in: check it, move the state, score the model; None if the round failed."""
    trial.failure = _non_finite(trial, seats, done)
    if trial.failure is not None:
        return None
    good = trial.state, trial.memory
    uploads = {seat.party: result.upload for seat, result in zip(seats, done, strict=True)}
    sent = nbytes(trial.state.model) + nbytes(trial.state.sent)
    pooled = ALGORITHMS[trial.config.algorithm.name].pooled  # then nothing travels
    server = trial.algorithm.server
    total: Tensors = {}
    travelled = up = 0
    for seat in seats:  # by party, whatever the order of training: floating-point sums depend on it
        part = server.contribute(uploads[seat.party], trial.facts[seat.party], seat.share)
        if part and not pooled:
            up, travelled = up + nbytes(part), travelled + 1
        total = add(total, part) if total else part
    if seats:
        trial.state = server.step(trial.state, total, trial.population)
    changed = {seat.party: result.slots for seat, result in zip(seats, done, strict=True)}
    if not any(changed.values()):
        changed = {}
    trial.memory = trial.memory | changed
    score = score_round(trial, bench, good[0].model, uploads)
    if not (finite(trial.state) and math.isfinite(score["test_loss"] or 0.0)):
        trial.failure = f"the model after round {trial.round + 1} is not finite (test loss {score['test_loss']})"
        trial.state, trial.memory = good
        return None
    trial.round += 1
    row = score | _losses(done) | {"bytes_up": up, "bytes_down": travelled * sent}
    row |= {"cohort": [seat.party for seat in seats], "steps": sum(r.upload.steps for r in done)}
    if trial.config.run.gamma:
        row["gamma"] = {str(s.party): _number(r.gamma) for s, r in zip(seats, done, strict=True)}
    return Settled({"round": trial.round} | row, changed)


def _number(value: float | None) -> float | None:
    """Keep a finite number; the log has no other word than null for a quotient by zero."""
    return value if value is not None and math.isfinite(value) else None


def _losses(done: list[Done]) -> Row:
    """Mean of each part of the loss over all steps of all parties."""
    if not done:
        return {"losses": {}}
    means = {k: torch.cat([r.losses[k] for r in done]).double().mean() for k in done[0].losses}
    return {"losses": {k: float(v) for k, v in means.items()}}


def _non_finite(trial: Trial, seats: list[Seat], done: list[Done]) -> str | None:
    """Find the first step with a loss that is not a number, or an update that is not finite."""
    where = f"in round {trial.round + 1}"
    for seat, result in zip(seats, done, strict=True):
        total = torch.stack(list(result.losses.values())).sum(0)
        bad = (~torch.isfinite(total)).nonzero()
        if len(bad):
            parts = ", ".join(f"{k} {float(v[bad[0, 0]]):g}" for k, v in result.losses.items())
            step = f"step {int(bad[0, 0]) + 1}"
            return f"the loss of party {trial.name(seat.party)} is not finite at {step} {where} ({parts})"
        if not finite(_floats(result.upload)):
            return (
                f"the update of party {trial.name(seat.party)} is not finite after step {result.upload.steps} {where}"
            )
    return None


def _floats(upload: Upload) -> tuple[Any, ...]:
    return upload.delta, upload.buffers, upload.slots


def round_to(seconds: float) -> float:
    """Keep a duration to the millisecond."""
    return round(seconds, 3)
