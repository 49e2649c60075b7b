"""Times ResNet-50 on CIFAR-100's shapes in images per second: one party's epoch, by FedAvg and by MOON."""

import logging
import statistics
from dataclasses import replace
from typing import Any

from moonfed.bench.baseline import seconds
from moonfed.bench.timing import WorkloadTimings, machine_facts
from moonfed.bench.workload import all_jobs, random_images, step_count
from moonfed.engines.devices import Device, is_gpu, peak_memory, release_memory, reset_peak_memory
from moonfed.training.config import make_config
from moonfed.training.loop import run_rounds
from moonfed.training.setup import set_up

logger = logging.getLogger(__name__)

BATCH, CLASSES, REPEATS = 64, 100, 3
GPU_PRECISIONS = ("tf32", "bf16")
GPU_ROWS, CPU_ROWS = 100 * BATCH, 2 * BATCH  # of one party


def time_resnet50(device: Device, rows: int | None = None, model: str = "resnet50") -> WorkloadTimings:
    """Time later rounds of a single party, augmented, with the engine that a run chooses; medians of three."""
    rows = rows or (GPU_ROWS if is_gpu(device) else CPU_ROWS)
    precisions = GPU_PRECISIONS if is_gpu(device) else ("fp32",)
    work = [(precision, algorithm) for precision in precisions for algorithm in ("fedavg", "moon")]
    return WorkloadTimings(
        f"{model}, {CLASSES} classes, images of 32x32 pixels, batch {BATCH}, one party; images are those trained on",
        ("precision", "algorithm", "images per s", "s of the first round", "peak GiB"),
        [(precision, algorithm, *_time(precision, algorithm, device, rows, model)) for precision, algorithm in work],
        machine_facts(device),
    )


def _time(precision: str, algorithm: str, device: Device, rows: int, model: str) -> tuple[float, float, float | None]:
    logger.info("%s %s, %s: %d images", model, precision, algorithm, rows)
    config = make_config(
        {
            "data": {"dataset": "cifar100", "partition": "iid", "parties": 1, "partition_seed": 0, "floor": BATCH},
            "algorithm": {"name": algorithm},
            "model": {"model": model},
            "train": {"epochs": 1, "batch": BATCH, "rounds": 1},
            "run": {"device": device.type, "precision": precision},
        }
    )
    data = replace(random_images(rows, device, augmented=True), classes=CLASSES)
    release_memory(device)
    reset_peak_memory(device)
    context, trials = set_up([config], [algorithm], data)
    ended: list[Any] = []
    first = seconds(device, lambda: ended.extend(run_rounds(trials, context)))
    jobs = all_jobs(ended, context)
    context.engine.run_cohort(jobs)  # MOON has a previous model from here on
    times = [seconds(device, lambda: context.engine.run_cohort(jobs)) for _ in range(REPEATS)]
    images = step_count(jobs) * BATCH
    peak = peak_memory(device)
    return images / statistics.median(times), first, peak / 2**30 if peak else None
