"""The only round loop: for one trial or for many that share a stack."""

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from moonfed.training.registry import ALGORITHMS
from moonfed.core.tree import add, finite, nbytes
from moonfed.core.types import Slots, State, Tensors, Upload
from moonfed.engines import JobResult
from moonfed.training.cohort import Participant
from moonfed.training.runner import CohortRunner, LocalRunner
from moonfed.training.scoring import score_round
from moonfed.training.trial import RunContext, Trial

RoundRecord = dict[str, Any]


@dataclass(frozen=True)
class RoundResult:
    """A trial's finished round: its row of the log, and the parties whose memory changed."""

    row: RoundRecord
    changed: dict[int, Slots]


def run_rounds(
    trials: Sequence[Trial],
    bench: RunContext,
    commit: Callable[[Trial, RoundResult], None],
    after_round: Callable[[int, list[RoundRecord]], bool] = lambda round, rows: True,
    parties: CohortRunner | None = None,
) -> None:
    """Run every trial to its last round; after_round may end the loop by returning False.

    parties says who trains: without a word, an engine here. A trial that fails keeps its failure and its last good
    state, and the others go on.
    """
    with ThreadPoolExecutor(1) as pool:
        parties = parties or LocalRunner(bench, pool)
        while active := [t for t in trials if t.failure is None and t.round < t.config.train.rounds]:
            began = time.perf_counter()
            round = min(t.round for t in active)
            active = [t for t in active if t.round == round]
            rows: list[RoundRecord] = []
            for trial, done in zip(active, parties.train(active), strict=True):
                settled = _settle(trial, bench, done)
                if settled is None:
                    continue
                settled.row["seconds"] = round_to(time.perf_counter() - began)
                settled.row["trials_in_stack"] = len(active)
                commit(trial, settled)
                rows.append(settled.row)
            if not after_round(round + 1, rows):
                return


def _settle(trial: Trial, bench: RunContext, done: dict[int, JobResult]) -> RoundResult | None:
    """Take a trial's round in: check it, move the state, score the model; None if the round failed.

    The round is that of the parties that gave a result: a server rule divides by the sum of their shares.
    """
    seats = [seat for seat in trial.cohorts.seats(trial.round) if seat.party in done]
    bad = _non_finite(trial, done)
    if bad is not None:
        trial.failure = bad + _room(trial)
        return None
    good = trial.state, trial.memory
    uploads = {seat.party: done[seat.party].upload for seat in seats}
    sent = nbytes(trial.state.model) + nbytes(trial.state.sent)
    pooled = ALGORITHMS[trial.config.algorithm.name].pooled  # then nothing travels
    trial.state, sizes = _aggregate(trial, seats, uploads)
    up, travelled = (0, 0) if pooled else (sum(sizes), len(sizes))
    changed = {seat.party: done[seat.party].slots for seat in seats}
    if not any(changed.values()):
        changed = {}
    trial.memory = trial.memory | changed
    score = score_round(trial, bench, good[0].model, uploads)
    if not (finite(trial.state) and math.isfinite(score["test_loss"] or 0.0)):
        bad = f"the model after round {trial.round + 1} is not finite (test loss {score['test_loss']})"
        trial.failure = bad + _room(trial)
        trial.state, trial.memory = good
        return None
    trial.round += 1
    results = [done[seat.party] for seat in seats]
    row = score | _losses(results) | {"bytes_up": up, "bytes_down": travelled * sent}
    row |= {"cohort": [seat.party for seat in seats], "steps": sum(r.upload.steps for r in results)}
    if trial.config.run.gamma:
        row["gamma"] = {str(seat.party): _number(done[seat.party].gamma) for seat in seats}
    return RoundResult({"round": trial.round} | row, changed)


def _aggregate(trial: Trial, seats: list[Participant], uploads: dict[int, Upload]) -> tuple[State, list[int]]:
    """Let the server rule move the state; return it with the bytes of each party that sent anything."""
    server = trial.algorithm.server
    if not seats:
        return trial.state, []
    if not server.linear:
        return server.combine(trial.state, uploads, trial.population), [nbytes(_floats(u)) for u in uploads.values()]
    total: Tensors = {}
    sizes: list[int] = []
    for seat in seats:  # by party, whatever the order of training: floating-point sums depend on it
        part = server.contribute(uploads[seat.party], trial.facts[seat.party], seat.share)
        sizes += [nbytes(part)] if part else []
        total = add(total, part) if total else part
    return server.step(trial.state, total, trial.population), sizes


def _number(value: float | None) -> float | None:
    """Keep a finite number; the log has no other word than null for a quotient by zero."""
    return value if value is not None and math.isfinite(value) else None


def _losses(done: list[JobResult]) -> RoundRecord:
    """Mean of each part of the loss over all steps of all parties."""
    if not done:
        return {"losses": {}}
    means = {k: torch.cat([r.losses[k] for r in done]).double().mean() for k in done[0].losses}
    return {"losses": {k: float(v) for k, v in means.items()}}


def _non_finite(trial: Trial, done: dict[int, JobResult]) -> str | None:
    """Find the first step with a loss that is not a number, or an update that is not finite."""
    where = f"in round {trial.round + 1}"
    for party, result in done.items():
        total = torch.stack(list(result.losses.values())).sum(0)
        bad = (~torch.isfinite(total)).nonzero()
        if len(bad):
            parts = ", ".join(f"{k} {float(v[bad[0, 0]]):g}" for k, v in result.losses.items())
            step = f"step {int(bad[0, 0]) + 1}"
            return f"the loss of party {trial.name(party)} is not finite at {step} {where} ({parts})"
        if not finite(_floats(result.upload)):
            return f"the update of party {trial.name(party)} is not finite after step {result.upload.steps} {where}"
    return None


def _room(trial: Trial) -> str:
    """Say what else may help where numbers have little room."""
    return "; fp16 ends at 65,504, --precision tf32 does not" if trial.config.run.precision == "fp16" else ""


def _floats(upload: Upload) -> tuple[Any, ...]:
    return upload.delta, upload.buffers, upload.slots


def round_to(seconds: float) -> float:
    """Keep a duration to the millisecond."""
    return round(seconds, 3)
