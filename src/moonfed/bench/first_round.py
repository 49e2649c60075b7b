"""Times how long a comparison takes until its first round is done, with and without a cache of compiled code."""

import logging
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from moonfed.bench.timing import WorkloadTimings, machine_facts
from moonfed.bench.workload import RoundClock, random_images
from moonfed.core.errors import RunFailed
from moonfed.engines import pick_device
from moonfed.engines.devices import Device, is_gpu
from moonfed.experiments.execute import execute
from moonfed.training.config import make_config
from moonfed.training.setup import set_up

logger = logging.getLogger(__name__)

COMPILER_CACHES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
GPU_ROWS, CPU_ROWS = 50_000, 2_560
LAST_WORDS = 300  # characters shown of what a process that failed said last


def time_first_round(device: Device, rows: int | None = None) -> WorkloadTimings:
    """Compare MOON and FedAvg in a new process twice: before the first one nothing is compiled."""
    rows = rows or (GPU_ROWS if is_gpu(device) else CPU_ROWS)
    timings: list[tuple[str, float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        caches = {name: str(Path(folder) / place) for name, place in COMPILER_CACHES.items()}
        for state in ("empty", "full"):
            logger.info("moon and fedavg, caches of the compilers: %s", state)
            command = [sys.executable, "-m", "moonfed.bench.first_round", device.type, str(rows)]
            began = time.time()
            process = subprocess.run(command, env=os.environ | caches, capture_output=True, text=True, check=False)
            if process.returncode:
                last = (process.stderr.strip().splitlines() or ["it said nothing"])[-1]
                raise RunFailed(f"a comparison ended with {process.returncode}: {last[:LAST_WORDS]}")
            _, first, second = map(float, process.stdout.split()[-3:])
            timings.append((state, first - began, second - first))
    return WorkloadTimings(
        "MOON and FedAvg in one stack, the paper's CIFAR-10 setting on random images, in a new process",
        ("caches of the compilers", "s until the first round is done", "s of the second round"),
        timings,
        machine_facts(device),
    )


def compare_two_rounds(device: Device, rows: int) -> list[float]:
    """Run two rounds of MOON and FedAvg as 100 rounds would begin; return when they began and when each was done."""
    algorithms: list[dict[str, Any]] = [{"name": "moon", "mu": 5.0}, {"name": "fedavg"}]
    data = random_images(rows, device, augmented=True)
    configs = [
        make_config(
            {
                "data": {"dataset": "cifar10", "partition_seed": 0, "floor": 64},
                "algorithm": algorithm,
                "train": {"rounds": 100},
                "run": {"device": device.type},
            }
        )
        for algorithm in algorithms
    ]
    context, trials = set_up(configs, [algorithm["name"] for algorithm in algorithms], data)
    clock = RoundClock(stop_after=2)
    with tempfile.TemporaryDirectory() as folder:
        execute(context, trials, [Path(folder) / name for name in ("moon", "fedavg")], callbacks=[clock])
    return clock.times


if __name__ == "__main__":
    sys.stdout.write(" ".join(map(repr, compare_two_rounds(pick_device(sys.argv[1]), int(sys.argv[2])))))
