"""The only round loop: for one trial or for many that share a stack."""

import math
import time
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import torch

from moonfed.core.tree import bases_of, finite, leaves, nbytes
from moonfed.engines import Closing, Engine, JobResult
from moonfed.training.callbacks import Callback
from moonfed.training.cohort import Cohort
from moonfed.training.early_stopping import better
from moonfed.training.evaluate import Score, evaluate_round
from moonfed.training.final_evaluation import final_evaluation
from moonfed.training.records import RoundRecord
from moonfed.training.registry import ALGORITHMS
from moonfed.training.release import release
from moonfed.training.runner import CohortRunner, LocalRunner
from moonfed.training.trial import RunContext, Trial


def run_rounds(
    trials: Sequence[Trial],
    context: RunContext,
    callbacks: Sequence[Callback] = (),
    runner: CohortRunner | None = None,
) -> list[Trial]:
    """Run every trial to its last round, or until a callback asks to stop; return the trials as they are then.

    Without a runner an engine in this process trains. A trial that fails keeps its last good state and says why; the
    others continue.
    """
    current = list(trials)
    with ThreadPoolExecutor(1) as pool, _closing(context.engine):
        runner = runner or LocalRunner(context, pool)
        while places := _next_places(current):
            began = time.perf_counter()
            active = [current[place] for place in places]
            cohorts = [trial.spec.cohorts.cohort(trial.round) for trial in active]
            finished: list[tuple[Trial, RoundRecord]] = []
            for place, cohort, results in zip(places, cohorts, runner.train(active, cohorts), strict=True):
                current[place], record = finish_round(current[place], context, cohort, results, runner)
                if record is None:
                    for callback in callbacks:
                        callback.on_failure(current[place])
                    continue
                record["seconds"] = round(time.perf_counter() - began, 3)
                record["trials_in_stack"] = len(active)
                finished.append((current[place], record))
            answers = [callback.on_round(finished) for callback in callbacks]  # every one is told
            if any(answer is True for answer in answers):
                break
    return current


@contextmanager
def _closing(engine: Engine) -> Generator[None]:
    """End the processes that an engine has started, also after Ctrl-C."""
    try:
        yield
    finally:
        if isinstance(engine, Closing):
            engine.close()


def _next_places(trials: Sequence[Trial]) -> list[int]:
    """Return the places of the trials that run next: those that are furthest behind."""
    low = min((trial.round for trial in trials if not trial.done), default=-1)
    return [place for place, trial in enumerate(trials) if not trial.done and trial.round == low]


def finish_round(
    trial: Trial, context: RunContext, cohort: Cohort, results: Mapping[int, JobResult], runner: CohortRunner
) -> tuple[Trial, RoundRecord | None]:
    """Aggregate a trial's round, run its phases and evaluate the model; without a record the round failed.

    Only parties that returned a result count: an aggregator divides by the sum of their shares.
    """
    present = [who for who in cohort if who.party in results]
    work = _work_of(trial, {who.party: results[who.party] for who in present})
    if (trouble := _non_finite(trial, results, work["losses"])) is not None:
        return trial.fail(trouble), None
    spec, sent = trial.spec, nbytes(trial.shared_model) + nbytes(trial.state.sent)
    uploads = {who.party: results[who.party].upload for who in present}
    shares = {who.party: who.share for who in present}
    state, bytes_up, copies = trial.algorithm.aggregate(trial.state, uploads, shares, spec.infos, spec.population)
    memory = {who.party: results[who.party].memory for who in present}
    after = replace(trial, state=state, round=trial.round + 1)
    if any(memory.values()):
        after = replace(after, memory=trial.memory | memory)
    after, phases_up, phases_down = release(after, runner)
    if after.failure is not None:
        return replace(trial, failure=after.failure), None
    judged_apart = after.algorithm.personal and after.is_evaluated
    own = runner.personal_scores(after) if judged_apart else dict[int, Score]()
    found, scores = evaluate_round(after, context, trial, uploads, own)
    if not (finite(state) and math.isfinite((found["test_loss"] or 0.0) + (found.get("monitor_loss") or 0.0))):
        loss = found["test_loss"]
        return trial.fail(f"the model after round {after.round} is not finite (test loss {loss})"), None
    if trial.config.train.patience and scores:
        after = replace(after, best=better(trial.best, after.round, found["monitor_loss"], after.current_model))
    if after.best is not None:
        found["best_round"] = after.best.round
    if after.done and not after.models_elsewhere:
        after = replace(after, evaluation=final_evaluation(after, context, scores))
    travels = not ALGORITHMS[trial.config.algorithm.name].pooled  # rows in one place: nothing does
    traffic = {
        "bytes_up": bytes_up + phases_up if travels else 0,
        "bytes_down": copies * sent + phases_down if travels else 0,
    }
    return after, cast(RoundRecord, {"round": after.round, **found, **traffic, **work})


def _work_of(trial: Trial, results: Mapping[int, JobResult]) -> dict[str, Any]:
    """Describe what the parties of a round did, by party in the order of the cohort."""
    done = list(results.values())
    work: dict[str, Any] = {
        "losses": _mean_losses(done),
        "cohort": list(results),
        "steps": sum(result.upload.steps for result in done),
    }
    if any(result.seconds for result in done):  # other machines do not say
        work["training_seconds"] = round(sum(result.seconds for result in done), 4)
    if trial.config.run.gamma:
        work["gamma"] = {str(party): _finite_or_none(result.gamma) for party, result in results.items()}
    return work


def _finite_or_none(value: float | None) -> float | None:
    """Keep a finite number; JSON has only null for a quotient by zero."""
    return value if value is not None and math.isfinite(value) else None


def _mean_losses(done: list[JobResult]) -> dict[str, float]:
    """Average each part of the loss over all steps of all parties."""
    if not done:
        return {}
    return {k: float(torch.cat([result.losses[k] for result in done]).double().mean()) for k in done[0].losses}


def _non_finite(trial: Trial, results: Mapping[int, JobResult], means: Mapping[str, float]) -> str | None:
    """Find the first step with a loss that is not a number, or an update that is not finite.

    means are those of the losses: all parties are checked at once, and one by one only if that fails.
    """
    uploaded = leaves([result.upload.tensors for result in results.values()])
    if math.isfinite(sum(means.values())) and finite(bases_of(uploaded)):
        return None
    where = f"in round {trial.round + 1}"
    for party, result in results.items():
        total = torch.stack(list(result.losses.values())).sum(0)
        bad = (~torch.isfinite(total)).nonzero()
        if len(bad):
            parts = ", ".join(f"{k} {float(v[bad[0, 0]]):g}" for k, v in result.losses.items())
            name = trial.spec.party_name(party)
            return f"the loss of party {name} is not finite at step {int(bad[0, 0]) + 1} {where} ({parts})"
        if not finite(result.upload.tensors):
            name = trial.spec.party_name(party)
            return f"the update of party {name} is not finite after step {result.upload.steps} {where}"
    return None
