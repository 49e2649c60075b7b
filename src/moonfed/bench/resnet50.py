"""Times ResNet-50 on CIFAR-100's shapes in images per second: one party's epoch, by FedAvg and by MOON."""

import logging
import statistics
from dataclasses import replace

from moonfed.bench.baseline import seconds
from moonfed.bench.timing import Mode, WorkloadTimings, machine_facts
from moonfed.bench.workload import all_jobs, check_trained, random_images, step_count
from moonfed.engines import EngineOptions, pick_engine
from moonfed.engines.devices import Device, is_gpu, peak_memory, release_memory, reset_peak_memory
from moonfed.training.config import make_config
from moonfed.training.loop import run_rounds
from moonfed.training.setup import set_up

logger = logging.getLogger(__name__)

BATCH, CLASSES, REPEATS = 64, 100, 3
MODES = {
    True: tuple(
        Mode(way, precision, way == "compiled") for precision in ("tf32", "fp16") for way in ("graphs", "compiled")
    ),
    False: (Mode("stacked", "fp32", False),),
}  # by whether there is a GPU
GPU_ROWS, CPU_ROWS = 100 * BATCH, 2 * BATCH  # of one party


def time_resnet50(device: Device, rows: int | None = None, model: str = "resnet50") -> WorkloadTimings:
    """Time rounds of a single party, augmented, with and without compilation; medians of three."""
    rows = rows or (GPU_ROWS if is_gpu(device) else CPU_ROWS)
    work = [(mode, algorithm) for mode in MODES[is_gpu(device)] for algorithm in ("fedavg", "moon")]
    return WorkloadTimings(
        f"{model}, {CLASSES} classes, images of 32x32 pixels, batch {BATCH}, one party; training images are counted",
        ("engine", "precision", "algorithm", "images per s", "peak GiB"),
        [(*mode[:2], algorithm, *_time(mode, algorithm, device, rows, model)) for mode, algorithm in work],
        machine_facts(device),
    )


def _time(mode: Mode, algorithm: str, device: Device, rows: int, model: str) -> tuple[float, float | None]:
    """Return images per second, and the peak of the GPU's memory in GiB."""
    logger.info("%s %s %s, %s: %d images", model, mode.way, mode.precision, algorithm, rows)
    config = make_config(
        {
            "data": {"dataset": "cifar100", "partition": "iid", "parties": 1, "partition_seed": 0, "floor": BATCH},
            "algorithm": {"name": algorithm},
            "model": {"model": model},
            "train": {"epochs": 1, "batch": BATCH, "rounds": 1},
            "run": {"device": device.type, "precision": mode.precision},
        }
    )
    data = replace(random_images(rows, device, augmented=True), classes=CLASSES)
    release_memory(device)
    reset_peak_memory(device)
    context, trials = set_up([config], [algorithm], data)
    options = EngineOptions(mode.precision, compile=mode.compile, wait_for_compiler=True)
    context = context._replace(engine=pick_engine("auto", context.nets, data, options))
    ended = run_rounds(trials, context)  # MOON has a previous model from here on
    check_trained(ended)
    jobs = all_jobs(ended, context)
    context.engine.run_cohort(jobs)
    times = [seconds(device, lambda: context.engine.run_cohort(jobs)) for _ in range(REPEATS)]
    peak = peak_memory(device)
    return step_count(jobs) * BATCH / statistics.median(times), peak / 2**30 if peak else None
