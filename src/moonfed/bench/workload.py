"""The work that a bench times: trials on random images, and the jobs of one of their rounds."""

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch

from moonfed.core.errors import RunFailed
from moonfed.core.seeds import generator
from moonfed.data.dataset import Augmentation, Dataset
from moonfed.engines import EngineOptions, Job, nets_of, pick_engine
from moonfed.engines.devices import Device
from moonfed.training.callbacks import Callback, Finished
from moonfed.training.config import Config, make_config
from moonfed.training.loop import run_rounds
from moonfed.training.network import build, net_spec
from moonfed.training.resolve import resolve
from moonfed.training.runner import make_jobs
from moonfed.training.trial import RunContext, Trial, new_trial

CIFAR_AUGMENTATION = Augmentation(pad=4, reflect=True, flip=True)


class RoundClock(Callback):
    """Notes when each round is done, after whatever else observes the run; may stop it."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.stop_after = stop_after
        self.times: list[float] = []  # of the start, then of every round

    def on_start(self, trials: Sequence[Trial]) -> None:
        """Note when the first round begins."""
        self.times.append(time.time())

    def on_round(self, finished: Finished) -> bool:
        """Note that a round is done."""
        self.times.append(time.time())
        return self.stop_after is not None and len(self.times) > self.stop_after

    def seconds(self) -> list[float]:
        """Return how long each round took."""
        return [after - before for before, after in pairwise(self.times)]


def random_images(rows: int, device: Device, augmented: bool) -> Dataset:
    """Make random images with the shape and the classes of CIFAR-10: speed does not depend on their content."""
    rng = generator(0, "bench", 0, 0)
    tests = max(64, rows // 5)
    images, test = (torch.from_numpy(rng.integers(0, 256, (n, 3, 32, 32), dtype="uint8")) for n in (rows, tests))
    labels, test_labels = (torch.arange(n) % 10 for n in (rows, tests))
    stats = (127.5, 127.5, 127.5), (73.9, 73.9, 73.9)
    augmentation = CIFAR_AUGMENTATION if augmented else Augmentation()
    return Dataset("noise", images, labels, test, test_labels, 10, *stats, augmentation, 64).to(device)


def make_context(data: Dataset, options: EngineOptions) -> RunContext:
    """Set up the network and the stacked engine."""
    nets = nets_of(build(net_spec(resolve(_config("fedavg", 0, 1), data), data)).to(data.inputs.device), data)
    return RunContext(data, nets, pick_engine("stacked", nets, data, options))


def after_first_round(algorithm: str, context: RunContext, trials: int, epochs: int, **split: Any) -> list[Trial]:
    """Set trials up and run their first round; only then does MOON have a previous model to contrast with."""
    configs = [_config(algorithm, seed, epochs, **split) for seed in range(trials)]
    return run_rounds([new_trial(resolve(config, context.data), context) for config in configs], context)


def _config(algorithm: str, seed: int, epochs: int, **split: Any) -> Config:
    split = {"dataset": "cifar10", "floor": 64, "beta": 0.5, "partition_seed": 0} | split
    rule: dict[str, Any] = {"name": algorithm} | ({"mu": 5.0} if algorithm == "moon" else {})
    train = {"epochs": epochs, "rounds": 1}
    return make_config({"data": split, "algorithm": rule, "train": train, "run": {"seed": seed}})


def check_trained(trials: Sequence[Trial]) -> None:
    """Refuse to time trials that failed."""
    if failures := [trial.failure for trial in trials if trial.failure is not None]:
        raise RunFailed(f"the work to be timed failed: {failures[0]}")


def run_whole_round(trials: list[Trial], context: RunContext) -> None:
    """Run one more round of every trial, with aggregation and evaluation."""
    run_rounds([_with_rounds(trial, trial.round + 1) for trial in trials], context)


def _with_rounds(trial: Trial, rounds: int) -> Trial:
    train = trial.config.train.model_copy(update={"rounds": rounds})
    return replace(trial, spec=replace(trial.spec, config=trial.config.model_copy(update={"train": train})))


def all_jobs(trials: list[Trial], context: RunContext) -> list[Job]:
    """List the jobs of every trial's next round."""
    return [job for trial in trials for job in make_jobs(trial, context)]


def step_count(jobs: Sequence[Job]) -> int:
    """Count the party-steps of jobs."""
    return sum(len(job.plan.rows) for job in jobs)
