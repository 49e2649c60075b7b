"""A trial: one seeded run as a value. What never changes is its spec; a round makes a new trial of the old one."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from moonfed.core.errors import UserError
from moonfed.core.rules import Algorithm
from moonfed.core.types import PartyInfo, Population, Slots, Snapshot, State, Tensors
from moonfed.core.wording import counted
from moonfed.data import Dataset
from moonfed.data.partition import Rows, Split, partition
from moonfed.engines import Engine, Nets, overflow_hint
from moonfed.models.custom import CustomEncoder
from moonfed.training.cohort import Cohorts
from moonfed.training.early_stopping import Best
from moonfed.training.network import NetSpec, net_spec, random_model
from moonfed.training.registry import ALGORITHMS, make_algorithm
from moonfed.training.resolve import ResolvedConfig
from moonfed.training.settings import DataSettings
from moonfed.training.validation_rows import divide_rows, evaluated_on


class RunContext(NamedTuple):
    """What the trials of one command share: data, network and engine."""

    data: Dataset
    nets: Nets
    engine: Engine
    custom: CustomEncoder | None = None  # the user's encoder, if it is not one of ours
    frozen: Tensors = {}  # noqa: RUF012 (the network's weights that are never trained; nobody writes into them)


@dataclass(frozen=True, eq=False)
class TrialSpec:
    """What a trial is made of and no round changes."""

    label: str  # the method, as the user wrote it
    config: ResolvedConfig
    algorithm: Algorithm
    network: NetSpec
    device: torch.device
    parts: Sequence[Rows]  # the training rows of each party; none where the parties are other machines
    infos: Sequence[PartyInfo]
    cohorts: Cohorts
    evaluation: Dataset  # its test rows are those that models are evaluated on
    party_names: tuple[str, ...] = ()  # where the parties have names
    frozen: Tensors = field(default_factory=dict[str, torch.Tensor])  # weights that are never trained
    monitor: Dataset | None = None  # its test rows are those set aside for early stopping and calibration

    @property
    def population(self) -> Population:
        """All parties together."""
        return Population(len(self.infos), sum(info.rows for info in self.infos))

    def party_name(self, party: int) -> str:
        """Return a party's name, or its number."""
        return self.party_names[party] if party < len(self.party_names) else str(party)

    def init_model(self, name: str) -> Snapshot:
        """Make the trial's random model of a name."""
        return random_model(self.network, self.config.run.seed, name, self.device)


@dataclass(frozen=True, eq=False)
class Trial:
    """Where a trial stands after some rounds."""

    spec: TrialSpec
    state: State
    memory: dict[int, Slots] = field(default_factory=dict[int, Slots])  # what each party remembers
    round: int = 0  # rounds done
    failure: str | None = None
    evaluation: dict[str, Any] | None = None  # of the final model in full, after the last round
    best: Best | None = None  # with early stopping, after the first evaluated round

    @property
    def config(self) -> ResolvedConfig:
        """The settings."""
        return self.spec.config

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm."""
        return self.spec.algorithm

    @property
    def done(self) -> bool:
        """Whether there is nothing left to run."""
        return self.failure is not None or self.stopped or self.round >= self.config.train.rounds

    @property
    def stopped(self) -> bool:
        """Whether early stopping has ended the trial."""
        return self.best is not None and self.best.waited >= self.config.train.patience

    @property
    def final_model(self) -> Snapshot:
        """The global model that is kept: with early stopping the best one so far, else the last."""
        return self.state.model if self.best is None else self.best.model

    def personal_models(self) -> dict[int, Snapshot]:
        """Return each party's own model, where an algorithm trains such models and no global one."""
        models = {k: self.algorithm.local.personal(self.state, slots) for k, slots in sorted(self.memory.items())}
        return {party: model for party, model in models.items() if model is not None}

    def fail(self, why: str) -> "Trial":
        """Return the trial at its last good state, with why it failed."""
        return replace(self, failure=why + overflow_hint(self.config.run.precision))


def new_trial(config: ResolvedConfig, context: RunContext, label: str = "") -> Trial:
    """Set a trial up before its first round."""
    data, evaluation = context.data, context.data
    parts, validation, monitor = divide_rows(split_rows(config, data), config.data, config.run.seed)
    if config.data.validation:
        evaluation = evaluated_on(data, validation)
    counts = class_counts(data.labels.cpu().numpy(), parts, data.classes)
    infos = [PartyInfo(i, len(part), tuple(counts[i])) for i, part in enumerate(parts)]
    trial = start_trial(config, evaluation, parts, infos, context.custom, label)
    watched = evaluated_on(data, monitor) if monitor else None
    return replace(trial, spec=replace(trial.spec, frozen=context.frozen, monitor=watched))


def split_rows(config: ResolvedConfig, data: Dataset) -> list[Rows]:
    """Return the training rows of each party; a pooled algorithm has one party with all rows."""
    labels = data.labels.cpu().numpy()
    if ALGORITHMS[config.algorithm.name].pooled:
        return [np.arange(len(labels))]
    settings = config.data
    party = None if data.party is None else data.party.cpu().numpy()
    if settings.parties > len(labels):
        raise UserError(
            f"{settings.parties} parties need at least as many rows, the data has {len(labels)}; use fewer --parties"
        )
    default = DataSettings.model_fields["classes_per_party"].default
    if settings.partition != "shards" and settings.classes_per_party != default:
        raise UserError(
            f"--classes-per-party {settings.classes_per_party} is for --partition shards, the partition is "
            f"{settings.partition}; omit it, or use --partition shards"
        )
    floor = 1 if settings.partition == "natural" else settings.floor
    split = Split(settings.parties, settings.beta, settings.classes_per_party, floor, settings.partition_seed, party)
    if settings.partition == "feature-skew":
        if data.words:
            raise UserError(
                f"feature-skew needs inputs that are numbers, {data.name} has texts; use another --partition"
            )
        split = split._replace(inputs=data.inputs.cpu().numpy())
    return partition(settings.partition, labels, split)


def class_counts(labels: Rows, parts: Sequence[Rows], classes: int) -> list[list[int]]:
    """Count each party's rows of each class."""
    return [np.bincount(labels[part], minlength=classes).tolist() for part in parts]


def start_trial(
    config: ResolvedConfig,
    data: Dataset,
    parts: Sequence[Rows],
    infos: Sequence[PartyInfo],
    custom: CustomEncoder | None = None,
    label: str = "",
) -> Trial:
    """Put a trial before its first round; where the parties are other machines, parts is empty."""
    settings = config.algorithm
    natural = config.data.partition == "natural" and not ALGORITHMS[settings.name].pooled
    names = data.party_names if natural else ()
    batch, small = config.train.batch, min(infos, key=lambda info: info.rows)
    if small.rows < batch:
        name = names[small.party] if small.party < len(names) else small.party
        raise UserError(
            f"party {name} has {counted(small.rows, 'row')}, fewer than a batch of {batch}; "
            f"use --batch {small.rows} or smaller"
            + ("" if config.data.partition == "natural" else f", or --floor {batch}")
        )
    algorithm = make_algorithm(settings.name, settings.server, settings.options)
    network, device, cohorts = net_spec(config, data, custom), data.inputs.device, Cohorts(config, infos)
    spec = TrialSpec(label or algorithm.name, config, algorithm, network, device, parts, infos, cohorts, data, names)
    model = spec.init_model("model")
    sent, server_state = algorithm.aggregator.init(model, spec.init_model), algorithm.server_optimizer.init(model)
    return Trial(spec, State(model, sent, server_state))
