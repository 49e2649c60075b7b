"""The phases after training: what would be released if training ended here, at every evaluated round."""

from dataclasses import replace

from moonfed.core.seeds import generator
from moonfed.core.tree import add, finite, nbytes
from moonfed.core.types import Tensors
from moonfed.engines.query import steady_threads
from moonfed.training.runner import CohortRunner
from moonfed.training.trial import Trial


def release(trial: Trial, runner: CohortRunner) -> tuple[Trial, int, int]:
    """Let an algorithm's phases make the model to release; return the trial with it, and the bytes up and down.

    Its state stays as it is, so that training continues as it would without phases. Between rounds that are not
    evaluated nothing is asked.
    """
    state, up, down = trial.state, 0, 0
    if not (trial.algorithm.phases and trial.is_evaluated):
        return replace(trial, released=None) if trial.released is not None else trial, up, down
    for place, phase in enumerate(trial.algorithm.phases):
        total: Tensors = {}
        for _, answer in runner.query(replace(trial, state=state), phase.query):
            total = add(total, answer) if total else answer
            up, down = up + nbytes(answer), down + nbytes(state.model)
        if not finite(total):
            return trial.fail(f"outputs of the model after round {trial.round} are not finite"), up, down
        rng = generator(trial.config.run.seed, "phase", place, trial.round)
        with steady_threads(trial.spec.device, state.model):
            state = state._replace(model=phase.conclude(state, total, rng))
    return replace(trial, released=state.model), up, down
