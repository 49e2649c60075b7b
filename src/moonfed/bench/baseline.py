"""The eager baseline: how long the eager loop takes for some jobs, and which models it ends at."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from moonfed.bench.eager_loop import eager_round
from moonfed.bench.workload import after_first_round, all_jobs, make_context
from moonfed.core.errors import RunFailed
from moonfed.core.tree import norm, sub
from moonfed.core.types import Snapshot, Tensors
from moonfed.data.dataset import Dataset
from moonfed.engines import EngineOptions, Job, numeric_precision
from moonfed.engines.devices import Device, synchronise
from moonfed.training.network import build
from moonfed.training.trial import Trial

TOLERANCE = {"fp32": 5e-3, "tf32": 5e-2, "fp16": 5e-2}  # relative difference that rounding explains


@dataclass(frozen=True)
class EagerBaseline:
    """Jobs for the eager loop, and the models that it ended at."""

    model: nn.Module
    data: Dataset
    jobs: list[Job]
    ends: list[Snapshot]

    def time(self) -> float:
        """Return the seconds that the eager loop takes now."""
        with numeric_precision("fp32"):
            return seconds(self.data.inputs.device, lambda: eager_round(self.model, self.data, self.jobs))

    def relative_difference(self, deltas: Sequence[Tensors]) -> float:
        """Compare updates to the eager loop's, relative to their norm; the largest over the parties.

        Several trials in one stack repeat the jobs.
        """
        largest = 0.0
        times = len(deltas) // len(self.jobs)
        for job, delta, end in zip(self.jobs * times, deltas, self.ends * times, strict=True):
            eager = sub(end.weights, job.state.model.weights)
            largest = max(largest, float(norm(sub(delta, eager)) / norm(eager)))
        return largest

    def check(self, name: str, deltas: Sequence[Tensors], precision: str) -> float:
        """Return the relative difference of updates; fail if rounding does not explain it."""
        difference = self.relative_difference(deltas)
        if not difference <= TOLERANCE[precision]:
            raise RunFailed(
                f"{name}: relative difference to the eager loop is {difference:.2g} "
                f"(tolerance {TOLERANCE[precision]:g}); timing discarded"
            )
        return difference


def make_baseline(algorithm: str, data: Dataset, epochs: int) -> EagerBaseline:
    """Run the eager loop on the second round of a trial."""
    context = make_context(data, EngineOptions())
    trials = after_first_round(algorithm, context, 1, epochs)
    return run_baseline(trials[0], data, all_jobs(trials, context))


def run_baseline(trial: Trial, data: Dataset, jobs: list[Job]) -> EagerBaseline:
    """Run the eager loop on jobs of a trial."""
    model = build(trial.spec.network).to(data.inputs.device)
    with numeric_precision("fp32"):
        return EagerBaseline(model, data, jobs, eager_round(model, data, jobs))


def seconds(device: Device, action: Callable[[], Any]) -> float:
    """Return the seconds that an action takes."""
    began = time.perf_counter()
    action()
    synchronise(device)
    return time.perf_counter() - began
