"""Estimates how long a recipe takes on this machine: party-steps times seconds per party-step."""

import logging
import statistics
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from moonfed.core.errors import UserError
from moonfed.core.files import read_json
from moonfed.core.seeds import generator
from moonfed.data.catalog.image_sets import IMAGE_SETS
from moonfed.engines.devices import gpu_name, pick_device, synchronise
from moonfed.models import ENCODERS, EncoderSpec
from moonfed.papers.recipe import Recipe
from moonfed.papers.recipe_trials import ReproductionOptions, is_finished, required_trials, rounds_done
from moonfed.papers.scale import BATCH, SMOKE_DATA
from moonfed.storage.run_files import CONFIG
from moonfed.storage.run_record import read_rounds
from moonfed.training.config import Config
from moonfed.training.network import NetSpec, build
from moonfed.training.settings import DEFAULT_EPOCHS

logger = logging.getLogger(__name__)

MOON_STEP_COST = 1.45  # of a FedAvg step, measured with ResNet-50: results/cifar100
DIGITS_ROWS = 1415
PROBE_ROWS = {"cnn": 64, "mlp": 64, "resnet50": 8}  # rows of the timed batch; the time is scaled to a full batch
WARM_STEPS, WARM_SECONDS = 5, 1.0  # at least so many steps are timed, for so long, after one that does not count


class Rate(NamedTuple):
    """Seconds per party-step without anchors, and the source of that figure."""

    seconds: float
    source: str


# MOON's round of 7,760 party-steps with three trials in a stack, fp16; FedAvg's of 776 with one party at a time.
MEASURED_RATES = {
    ("H200", "cifar10"): Rate(0.44 / 7760 / MOON_STEP_COST, "an H200 in fp16, results/speed.md"),
    ("H200", "cifar100"): Rate(33 / 776, "an H200, results/cifar100"),
    ("H200", "tinyimagenet"): Rate(4 * 33 / 776, "an H200, results/cifar100, four times the pixels"),
}


def costs(recipes: Sequence[Recipe], options: ReproductionOptions) -> list[dict[str, Any]]:
    """Describe what each recipe needs and about how long it takes here, each as if run alone."""
    rates: dict[str, Rate] = {}
    found: list[dict[str, Any]] = []
    for recipe in recipes:
        trials = {folder: config for folder, (config, _) in required_trials([recipe], options).items()}
        left = {f: c for f, c in trials.items() if not is_finished(f, c.train.rounds)}
        for name in sorted({config.data.dataset for config in left.values()} - set(rates)):
            rates[name] = rate_of(name, trials_folder(options), options.run.get("device", "auto"))
        seconds = sum(steps_left(f, c) * _weight(c) * rates[c.data.dataset].seconds for f, c in left.items())
        found.append(
            {
                "id": recipe.id,
                "title": recipe.title,
                "ours": recipe.ours,
                "scale": options.scale,
                "datasets": recipe.datasets if options.scale == "full" else [SMOKE_DATA],
                "trials": len(trials),
                "trials_left": len(left),
                "rounds": sorted({config.train.rounds for config in trials.values()}),
                "party_steps_left": round(sum(steps_left(f, c) for f, c in left.items())),
                "seconds": round(seconds, 1),
                "rates": {d: rates[d]._asdict() for d in sorted({c.data.dataset for c in left.values()})},
            }
        )
    return found


def trials_folder(options: ReproductionOptions) -> Path:
    """The folder of all trials."""
    return options.out / "trials"


def steps_left(folder: Path, config: Config) -> float:
    """Remaining party-steps of a trial; incomplete batches count in part."""
    entry = IMAGE_SETS.get(config.data.dataset)
    rows, batch = (entry.train, entry.batch) if entry else (DIGITS_ROWS, BATCH)
    rounds, epochs = max(0, config.train.rounds - rounds_done(folder)), config.train.epochs or DEFAULT_EPOCHS
    return rounds * epochs * config.cohort.fraction * rows / batch


def rate_of(dataset: str, folder: Path, device: str) -> Rate:
    """Seconds per party-step: from runs made here, as measured for this GPU, or from a few steps timed now."""
    chosen = pick_device(device)
    gpu = gpu_name(chosen)
    if (rates := list(_rates_of_runs(dataset, folder, gpu))) != []:
        return Rate(statistics.median(rates), f"runs made here, in {folder}")
    for (name, known), rate in MEASURED_RATES.items():
        if gpu is not None and name in gpu and known == dataset:
            return rate
    logger.info("timing a few steps on %s", dataset)
    return Rate(_time_steps(dataset, chosen), "warm steps timed now, without a stack")


def _rates_of_runs(dataset: str, folder: Path, gpu: str | None) -> Iterable[float]:
    for path in sorted(folder.glob(f"{dataset}-*/{CONFIG}")) if folder.is_dir() else ():
        try:
            config, rows = read_json(path), read_rounds(path.parent)
            weight = MOON_STEP_COST if config["config"]["algorithm"]["name"] == "moon" else 1.0
            if config["machine"]["gpu"] == gpu:
                yield from (r["seconds"] / r["steps"] / r["trials_in_stack"] / weight for r in rows[1:] if r["steps"])
        except (UserError, KeyError, TypeError):
            continue


def _time_steps(dataset: str, device: torch.device) -> float:
    """Time warm steps and return the fastest, which other work on the machine disturbed least."""
    entry = IMAGE_SETS.get(dataset)
    encoder, shape, classes = (entry.encoder, entry.shape, entry.classes) if entry else ("mlp", (1, 8, 8), 10)
    spec = NetSpec(encoder, EncoderSpec(shape, ENCODERS[encoder].norm), classes, 256)
    batch, rows = (entry.batch if entry else BATCH), PROBE_ROWS[encoder]
    net = build(spec).to(device).train()
    x = torch.from_numpy(generator(0, "bench", 0, 1).normal(size=(rows, *shape))).float().to(device)
    spent: list[float] = []
    while len(spent) <= WARM_STEPS or sum(spent[1:]) < WARM_SECONDS:
        began = time.perf_counter()
        net(x).logits.sum().backward()
        synchronise(device)
        spent.append(time.perf_counter() - began)
    return min(spent[1:]) * batch / rows


def _weight(config: Config) -> float:
    return MOON_STEP_COST if config.algorithm.name == "moon" else 1.0
