"""Times rounds of many small parties: the CIFAR-10 workload of pfl-research's benchmark, on random images."""

import logging
import statistics
import tempfile
from pathlib import Path
from typing import NamedTuple

from torch import Tensor, nn

from moonfed.bench.timing import Mode, WorkloadTimings, machine_facts
from moonfed.bench.workload import RoundClock, check_trained, random_images
from moonfed.engines import EngineOptions, pick_engine
from moonfed.engines.devices import Device, is_gpu
from moonfed.experiments.execute import execute
from moonfed.models.custom import custom_encoder
from moonfed.training.config import make_config
from moonfed.training.setup import set_up

logger = logging.getLogger(__name__)

GPU_ROUNDS, CPU_ROUNDS = 100, 10  # that are timed


class CrossDeviceWork(NamedTuple):
    """Who takes part, and what each party does; the learning rate is that of the benchmark."""

    parties: int = 1000
    rows: int = 50  # of each party
    fraction: float = 0.05
    batch: int = 10
    lr: float = 0.1
    every: int = 10  # rounds between evaluations on all test rows, and between checkpoints; the first ones warm up


MODES = {
    True: (Mode("graphs", "tf32", False), Mode("compiled", "tf32", True)),
    False: (Mode("stacked", "fp32", False),),
}  # by whether there is a GPU


BENCHMARK = CrossDeviceWork()


class BenchmarkEncoder(nn.Module):
    """The network of that benchmark up to its output layer."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(shape[0], 32, 3),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Dropout(0.25),
            nn.Flatten(),
            nn.LazyLinear(128),
            nn.ReLU(),
            nn.Dropout(0.5),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the features of a batch of images."""
        return self.layers(x)


def time_cross_device(device: Device, rounds: int | None = None, work: CrossDeviceWork = BENCHMARK) -> WorkloadTimings:
    """Time rounds of a small part of the parties, one epoch each, by FedAvg and by MOON."""
    rounds = rounds or (GPU_ROUNDS if is_gpu(device) else CPU_ROUNDS)
    ways = [(mode, algorithm) for mode in MODES[is_gpu(device)] for algorithm in ("fedavg", "moon")]
    cohort = int(work.parties * work.fraction)
    return WorkloadTimings(
        f"{cohort} of {work.parties:,} parties per round, {work.rows} rows each, batch {work.batch}, one epoch; "
        f"logged, evaluated and checkpointed every {work.every} rounds",
        ("engine", "precision", "algorithm", "s per round", "median s"),
        [
            (mode.way, mode.precision, algorithm, *_time(mode, algorithm, device, rounds, work))
            for mode, algorithm in ways
        ],
        machine_facts(device),
    )


def _time(mode: Mode, algorithm: str, device: Device, rounds: int, work: CrossDeviceWork) -> tuple[float, float]:
    """Return the mean and the median seconds of the timed rounds."""
    last, every = work.every + rounds, work.every
    logger.info("%s %s, %s: %d rounds", mode.way, mode.precision, algorithm, last)
    split = {"partition": "iid", "parties": work.parties, "floor": work.batch, "partition_seed": 0}
    config = make_config(
        {
            "data": {"dataset": "cifar10", **split},
            "algorithm": {"name": algorithm},
            "train": {"epochs": 1, "batch": work.batch, "lr": work.lr, "momentum": 0.0, "weight_decay": 0.0}
            | {"rounds": last + 1},  # it is stopped before the end, which would be evaluated in full
            "model": {"projection": 256 if algorithm == "moon" else 0},
            "cohort": {"fraction": work.fraction},
            "run": {"device": device.type, "evaluate_every": every, "checkpoint_every": every},
        }
    )
    data = random_images(work.parties * work.rows, device, augmented=False)
    context, trials = set_up([config], [algorithm], data, custom_encoder(BenchmarkEncoder))
    options = EngineOptions(mode.precision, compile=mode.compile, wait_for_compiler=True)
    context = context._replace(engine=pick_engine("stacked", context.nets, data, options))
    clock = RoundClock(stop_after=last)
    with tempfile.TemporaryDirectory() as folder:
        ((trial, _),) = execute(context, trials, [Path(folder) / "run"], callbacks=[clock])
    check_trained([trial])
    timed = clock.seconds()[every:]
    return statistics.mean(timed), statistics.median(timed)
