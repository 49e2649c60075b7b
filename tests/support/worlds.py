"""Tiny federations for the tests: real digits, a few parties, the real loop."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from moonfed.core.seeds import generator
from moonfed.core.tree import leaves
from moonfed.core.types import (
    Clock,
    Optim,
    Outputs,
    PartyInfo,
    Snapshot,
    State,
    StepContext,
    Tensors,
    party_tensors,
)
from moonfed.data.catalog.digits import digits
from moonfed.data.dataset import Dataset
from moonfed.engines import ENGINES, Engine, EngineOptions, Nets, nets_of
from moonfed.training.callbacks import Callback, Finished
from moonfed.training.config import Config, make_config
from moonfed.training.loop import run_rounds
from moonfed.training.network import build, net_spec
from moonfed.training.resolve import resolve
from moonfed.training.trial import RunContext, Trial, new_trial

ROWS = 160


def some_digits(rows: int = ROWS, device: str = "cpu") -> Dataset:
    """The first training rows of the digits and the first test rows."""
    whole = digits()
    few = {k: getattr(whole, k)[:rows] for k in ("inputs", "labels")}
    few |= {k: getattr(whole, k)[:60] for k in ("test_inputs", "test_labels")}
    return replace(whole, **few).to(torch.device(device))


def some_texts(rows: int = ROWS) -> Dataset:
    """Texts of one to nine of forty words; whether more of the first or of the last twenty decides the class."""
    rng = generator(0, "tests", "texts")
    words = rng.integers(1, 41, size=(rows + 60, 9)) * (np.arange(9) < rng.integers(1, 10, size=(rows + 60, 1)))
    labels = ((words > 20).sum(1) > ((words > 0) & (words <= 20)).sum(1)).astype(np.int64)
    inputs, labels = torch.from_numpy(words), torch.from_numpy(labels)
    parts = inputs[:rows], labels[:rows], inputs[rows:], labels[rows:]
    return Dataset("texts", *parts, classes=2, words=40, encoder="text", batch=8)


def some_sounds(rows: int = ROWS) -> Dataset:
    """Spectrograms of noise with a tone in one of three bands, which decides the class."""
    rng = generator(0, "tests", "sounds")
    labels = rng.integers(0, 3, size=rows + 60)
    heard = rng.normal(size=(rows + 60, 1, 12, 10))
    heard[np.arange(rows + 60), 0, 2 + 4 * labels, :] += 2
    inputs, labels = torch.from_numpy(heard).float(), torch.from_numpy(labels)
    parts = inputs[:rows], labels[:rows], inputs[rows:], labels[rows:]
    return Dataset("sounds", *parts, classes=3, encoder="sound", batch=8)


def step_context(
    weights: Tensors | None = None,
    anchors: dict[str, Outputs] | None = None,
    state: State | None = None,
    memory: Mapping[str, Snapshot | Tensors | Tensor] | None = None,
    class_counts: Sequence[int] = (1, 1),
    clock: Sequence[int] = (0, 0, 1),
    lr: float = 0.1,
) -> StepContext:
    """What a rule reads in a step, for calling a rule's functions by themselves."""
    unit = next(iter((weights or {"w": torch.zeros(())}).values()))
    optim = Optim(*(unit.new_tensor(value) for value in (lr, 0.0, 0.0, 0.0)))
    party = party_tensors(PartyInfo(0, sum(class_counts), tuple(class_counts)), unit)
    sent = State(Snapshot(weights or {}, {}), {}, {}) if state is None else state
    times = Clock(*(torch.tensor(value) for value in clock))
    return StepContext(weights or {}, anchors or {}, sent, dict(memory or {}), optim, party, times)


def settings(algorithm: str = "fedavg", **changes: Any) -> Config:
    """A small config; changes are SECTION__NAME=VALUE."""
    values: dict[str, dict[str, Any]] = {
        "algorithm": {"name": algorithm},
        "data": {"parties": 4, "beta": 0.5, "floor": 8},
        "model": {"model": "mlp", "projection": 16},
        "train": {"rounds": 3, "epochs": 1, "batch": 8, "lr": 0.05},
    }
    for key, value in changes.items():
        section, name = key.split("__")
        values.setdefault(section, {})[name] = value
    return make_config(values)


def context_for(config: Config, engine: str = "sequential", data: Dataset | None = None) -> RunContext:
    """Set up data, network and engine."""
    data = data or some_digits()
    nets = nets_of(build(net_spec(resolve(config, data), data)).to(data.inputs.device), data)
    return RunContext(data, nets, ENGINES[engine](nets, data, EngineOptions()))


class Records(Callback):
    """Keeps the records of each trial, in the order of the trials."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        self.by_trial: dict[Any, list[Any]] = {trial.spec: [] for trial in trials}

    def on_round(self, finished: Finished) -> None:
        for trial, record in finished:
            self.by_trial[trial.spec].append(record)


def ready(
    configs: Config | Sequence[Config], engine: str = "sequential", data: Dataset | None = None
) -> tuple[RunContext, list[Trial]]:
    """Set configs of one network up as one group of trials."""
    group = [configs] if isinstance(configs, Config) else list(configs)
    context = context_for(group[0], engine, data)
    return context, [new_trial(resolve(config, context.data), context) for config in group]


def run(trials: Sequence[Trial], context: RunContext) -> tuple[list[Trial], list[list[Any]]]:
    """Run trials to their end; return them with their records."""
    records = Records(trials)
    return run_rounds(trials, context, [records]), list(records.by_trial.values())


def trained(
    configs: Config | Sequence[Config], engine: str = "sequential", data: Dataset | None = None
) -> tuple[list[Trial], list[list[Any]]]:
    """Run configs of one network as one group of trials; return them with their records."""
    context, trials = ready(configs, engine, data)
    return run(trials, context)


def run_one(config: Config, engine: str = "sequential", data: Dataset | None = None) -> Trial:
    """Run one config to its end."""
    (trial,), _ = trained(config, engine, data)
    assert trial.failure is None
    return trial


def run_with(config: Config, make_engine: Callable[[Nets, Dataset], Engine], data: Dataset | None = None) -> Trial:
    """Run one config to its end with an engine made of networks and data."""
    context = context_for(config, "sequential", data)
    context = context._replace(engine=make_engine(context.nets, context.data))
    (trial,), _ = run([new_trial(resolve(config, context.data), context)], context)
    assert trial.failure is None
    return trial


def same_bits(a: Any, b: Any) -> bool:
    """Whether two trees hold the same bits."""
    return all(torch.equal(x, y) for x, y in zip(leaves(a), leaves(b), strict=True))


def gap(a: Any, b: Any) -> float:
    """The largest difference between two trees."""
    pairs = zip(leaves(a), leaves(b), strict=True)
    return max((float((x.double() - y.double()).abs().max()) for x, y in pairs if x.numel()), default=0.0)
