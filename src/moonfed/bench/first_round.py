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
from moonfed.bench.workload import RoundClock, check_trained, random_images
from moonfed.core.errors import RunFailed
from moonfed.engines import pick_device
from moonfed.engines.devices import Device, is_gpu
from moonfed.experiments.execute import execute
from moonfed.training.config import make_config
from moonfed.training.setup import set_up

logger = logging.getLogger(__name__)

COMPILER_CACHES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
GPU_ROWS, CPU_ROWS = 50_000, 2_560
MAX_ERROR = 300  # characters shown of the message of a process that failed


def time_first_round(device: Device, rows: int | None = None) -> WorkloadTimings:
    """Compare MOON and FedAvg in a new process, on a GPU twice: before the first one nothing is compiled."""
    rows = rows or (GPU_ROWS if is_gpu(device) else CPU_ROWS)
    timings: list[tuple[str, float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        caches = {name: str(Path(folder) / place) for name, place in COMPILER_CACHES.items()}
        for state in ("empty", "full") if is_gpu(device) else ("not needed",):
            logger.info("moon and fedavg, caches of the compilers: %s", state)
            command = [sys.executable, "-m", "moonfed.bench.first_round", device.type, str(rows)]
            began = time.time()
            process = subprocess.run(command, env=os.environ | caches, capture_output=True, text=True, check=False)
            if process.returncode:
                last = (process.stderr.strip().splitlines() or ["no message"])[-1]
                raise RunFailed(f"the process to be timed failed: {last[:MAX_ERROR]}")
            _, first, second = map(float, process.stdout.split()[-3:])
            timings.append((state, first - began, second - first))
    return WorkloadTimings(
        "MOON and FedAvg in one stack, the paper's CIFAR-10 setting on random images, in a new process",
        ("caches of the compilers", "first round done after, s", "second round, s"),
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
        places = [Path(folder) / name for name in ("moon", "fedavg")]
        ended = execute(context, trials, places, callbacks=[clock])
    check_trained([trial for trial, _ in ended])
    return clock.times


if __name__ == "__main__":
    sys.stdout.write(" ".join(map(repr, compare_two_rounds(pick_device(sys.argv[1]), int(sys.argv[2])))))
