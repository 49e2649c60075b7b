"""About how long a recipe takes on this machine: party-steps times the seconds of one, and where those come from."""

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from moonfed.core.errors import UserError
from moonfed.core.files import read_json
from moonfed.core.seeds import generator
from moonfed.data.catalog.image_sets import IMAGE_SETS
from moonfed.engines import pick_device
from moonfed.models import ENCODERS, EncoderSpec
from moonfed.papers.recipe import Recipe
from moonfed.papers.recipe_trials import Terms, is_finished, rounds_done, wanted
from moonfed.papers.scale import BATCH, SMOKE_DATA
from moonfed.storage.run_folder import CONFIG, read_rounds
from moonfed.training.config import Config
from moonfed.training.network import NetSpec, build

ANCHORED = 1.45  # a MOON step over a FedAvg one, as measured with ResNet-50: results/cifar100
DIGITS_ROWS = 1415
PROBE_ROWS = {"cnn": 64, "mlp": 64, "resnet50": 2}  # of the batch that is timed; the time is scaled to a whole one


class Rate(NamedTuple):
    """Seconds of one party-step without anchors, and how they are known."""

    seconds: float
    source: str


# MOON's round of 7,760 party-steps with three trials in a stack, fp16; FedAvg's of 776 with one party at a time.
STATED = {
    ("H200", "cifar10"): Rate(0.44 / 7760 / ANCHORED, "an H200 in fp16, results/speed.md"),
    ("H200", "cifar100"): Rate(33 / 776, "an H200, results/cifar100"),
    ("H200", "tinyimagenet"): Rate(4 * 33 / 776, "an H200, results/cifar100, four times the pixels"),
}


def costs(recipes: Sequence[Recipe], terms: Terms, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Say of each recipe what it needs and about how long it takes here, each as if it were run alone."""
    rates: dict[str, Rate] = {}
    found: list[dict[str, Any]] = []
    for recipe in recipes:
        trials = {folder: config for folder, (config, _) in wanted([recipe], terms).items()}
        left = {f: c for f, c in trials.items() if not is_finished(f, c.train.rounds)}
        for name in sorted({config.data.dataset for config in left.values()} - set(rates)):
            rates[name] = rate_of(name, trials_folder(terms), terms.run.get("device", "auto"), say)
        seconds = sum(steps_left(f, c) * _weight(c) * rates[c.data.dataset].seconds for f, c in left.items())
        found.append(
            {
                "id": recipe.id,
                "title": recipe.title,
                "ours": recipe.ours,
                "scale": terms.scale,
                "datasets": recipe.datasets if terms.scale == "full" else [SMOKE_DATA],
                "trials": len(trials),
                "trials_left": len(left),
                "rounds": sorted({config.train.rounds for config in trials.values()}),
                "party_steps_left": round(sum(steps_left(f, c) for f, c in left.items())),
                "seconds": round(seconds, 1),
                "rates": {d: rates[d]._asdict() for d in sorted({c.data.dataset for c in left.values()})},
            }
        )
    return found


def trials_folder(terms: Terms) -> Path:
    """The folder of all trials."""
    return terms.out / "trials"


def steps_left(folder: Path, config: Config) -> float:
    """Count the party-steps that a trial has still to do, incomplete batches counted in part."""
    entry = IMAGE_SETS.get(config.data.dataset)
    rows, batch = (entry.train, entry.batch) if entry else (DIGITS_ROWS, BATCH)
    rounds = max(0, config.train.rounds - rounds_done(folder))
    return rounds * config.train.epochs * config.cohort.fraction * rows / batch


def rate_of(dataset: str, folder: Path, device: str, say: Callable[[str], None]) -> Rate:
    """Find the seconds of a party-step: from runs made here, as stated for this GPU, or from one step timed now."""
    chosen = pick_device(device)
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise UserError(f"device {device} needs a GPU that torch can use, and there is none; use --device cpu or auto")
    gpu = torch.cuda.get_device_name(chosen) if chosen.type == "cuda" else None
    if (seen := list(_seen(dataset, folder, gpu))) != []:
        return Rate(statistics.median(seen), f"runs made here, in {folder}")
    for (name, known), rate in STATED.items():
        if gpu is not None and name in gpu and known == dataset:
            return rate
    say(f"timing one step on {dataset} ...")
    return Rate(_one_step(dataset, chosen), "one plain step timed now, without a stack")


def _seen(dataset: str, folder: Path, gpu: str | None) -> Iterable[float]:
    for path in sorted(folder.glob(f"{dataset}-*/{CONFIG}")) if folder.is_dir() else ():
        try:
            there, rows = read_json(path), read_rounds(path.parent)
            weight = ANCHORED if there["config"]["algorithm"]["name"] == "moon" else 1.0
            if there["machine"]["gpu"] == gpu:
                yield from (r["seconds"] / r["steps"] / r["trials_in_stack"] / weight for r in rows[1:] if r["steps"])
        except (UserError, KeyError, TypeError):
            continue


def _one_step(dataset: str, device: torch.device) -> float:
    entry = IMAGE_SETS.get(dataset)
    encoder, shape, classes = (entry.encoder, entry.shape, entry.classes) if entry else ("mlp", (1, 8, 8), 10)
    spec = NetSpec(encoder, EncoderSpec(shape, ENCODERS[encoder].norm), classes, 256)
    batch, rows = (entry.batch if entry else BATCH), PROBE_ROWS[encoder]
    net = build(spec).to(device).train()
    x = torch.from_numpy(generator(0, "bench", 0, 1).normal(size=(rows, *shape))).float().to(device)
    spent: list[float] = []
    for _ in range(2):
        began = time.perf_counter()
        net(x).logits.sum().backward()
        if device.type == "cuda":
            torch.cuda.synchronize()
        spent.append(time.perf_counter() - began)
    return min(spent) * batch / rows


def _weight(config: Config) -> float:
    return ANCHORED if config.algorithm.name == "moon" else 1.0
