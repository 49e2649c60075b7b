"""A trial: one seeded run as a value. What never changes is its spec; a round makes a new trial of the old one."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch

from moonfed.core.algorithm import Algorithm
from moonfed.core.errors import UserError
from moonfed.core.private_tensors import public_part
from moonfed.core.types import PartyInfo, Population, Slots, Snapshot, State, Tensors
from moonfed.core.wording import counted
from moonfed.data import Dataset
from moonfed.data.partition import Rows
from moonfed.data.population import PartyInfos, Totals, totals_of
from moonfed.engines import Engine, Nets, overflow_hint
from moonfed.models import normalises_rows
from moonfed.models.custom import CustomEncoder
from moonfed.training.cohort import Cohorts
from moonfed.training.early_stopping import Best
from moonfed.training.network import NetSpec, build, net_spec, private_tensors, random_model
from moonfed.training.party_memory import PartyMemory
from moonfed.training.party_rows import divide_data
from moonfed.training.registry import ALGORITHMS, make_algorithm
from moonfed.training.resolve import ResolvedConfig
from moonfed.training.unit_order import check_unit_order
from moonfed.training.validation_rows import evaluated_on

MIN_NORMALISED_ROWS = 2  # of a batch, for batch normalisation


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
    private: frozenset[str] = frozenset()  # names of the tensors that never leave a party
    monitor: Dataset | None = None  # its test rows are those set aside for early stopping and calibration

    @cached_property
    def totals(self) -> Totals:
        """What is known of all parties together."""
        return totals_of(self.infos)

    @property
    def population(self) -> Population:
        """All parties together."""
        return Population(len(self.infos), self.totals.rows, self.config.run.seed)

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
    memory: PartyMemory = field(default_factory=dict[int, Slots])  # what each party remembers
    round: int = 0  # rounds done
    failure: str | None = None
    evaluation: dict[str, Any] | None = None  # of the final model in full, after the last round
    best: Best | None = None  # with early stopping, after the first evaluated round
    released: Snapshot | None = None  # after an evaluated round: what phases made of the state; None without phases

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
    def is_last(self) -> bool:
        """Whether the last round is done."""
        return self.round == self.config.train.rounds

    @property
    def is_evaluated(self) -> bool:
        """Whether the model after the rounds so far is evaluated."""
        return self.round % self.config.run.evaluate_every == 0 or self.is_last

    @property
    def models_elsewhere(self) -> bool:
        """Whether the models that are evaluated are at other machines: personal models of sites."""
        return self.algorithm.personal and not self.spec.parts

    @property
    def current_model(self) -> Snapshot:
        """The global model that would be released if training ended here."""
        return self.state.model if self.released is None else self.released

    @property
    def shared_model(self) -> Snapshot:
        """What of the server's model parties are sent: all but their private tensors."""
        return public_part(self.state.model, self.spec.private)

    @property
    def final_model(self) -> Snapshot:
        """The global model that is kept: with early stopping the best one so far, else the last."""
        return self.current_model if self.best is None else self.best.model

    def personal_models(self) -> dict[int, Snapshot]:
        """Return each party's own model, where an algorithm trains such models and they are here."""
        if self.models_elsewhere:
            return {}
        local, sent = self.algorithm.local, self.algorithm.aggregator.party_models(self.state)
        parties = [info.party for info in self.spec.infos] if local.private or local.own_rows else sorted(self.memory)
        states = {k: self.state._replace(model=sent.get(k, self.state.model)) for k in parties}
        models = {k: local.personal(state, self.memory.get(k, {})) for k, state in states.items()}
        return {party: model for party, model in models.items() if model is not None}

    def fail(self, why: str) -> "Trial":
        """Return the trial at its last good state, with why it failed."""
        return replace(self, failure=why + overflow_hint(self.config.run.precision))


def new_trial(config: ResolvedConfig, context: RunContext, label: str = "") -> Trial:
    """Set a trial up before its first round."""
    data, evaluation = context.data, context.data
    parts, validation, monitor = divide_data(config, data)
    if config.data.validation:
        evaluation = evaluated_on(data, validation)
    trial = start_trial(config, evaluation, parts, PartyInfos(parts), context.custom, label)
    watched = evaluated_on(data, monitor) if monitor else None
    return replace(trial, spec=replace(trial.spec, frozen=context.frozen, monitor=watched))


def start_trial(
    config: ResolvedConfig,
    data: Dataset,
    parts: Sequence[Rows],
    infos: Sequence[PartyInfo],
    custom: CustomEncoder | None = None,
    label: str = "",
    sites: Sequence[str] = (),
) -> Trial:
    """Put a trial before its first round; where the parties are other machines, parts is empty and sites are named."""
    settings = config.algorithm
    natural = config.data.partition == "natural" and not ALGORITHMS[settings.name].pooled
    names = tuple(sites) or (data.party_names if natural else ())
    simulated = bool(parts) and config.data.partition != "natural"
    network, device, cohorts = net_spec(config, data, custom), data.inputs.device, Cohorts(config, infos)
    algorithm = make_algorithm(settings.name, settings.server, settings.options)
    spec = TrialSpec(label or algorithm.name, config, algorithm, network, device, parts, infos, cohorts, data, names)
    check_batch(config, network, infos[spec.totals.smallest], names, simulated)
    spec = replace(spec, private=private_tensors(network, algorithm.local))
    model = spec.init_model("model")
    public = public_part(model, spec.private)
    if not public.weights:
        raise UserError(
            f"{algorithm.name} keeps all trained weights of this network at the parties, so nothing would be shared; "
            "use --algorithm solo, or train more of the network"
        )
    sent = algorithm.aggregator.init(public, spec.init_model, spec.population)
    if algorithm.aggregator.reorders_units:
        check_unit_order(network, public, spec.private, algorithm.name)
    return Trial(spec, State(model, sent, algorithm.server_optimizer.init(public)))


def check_batch(
    config: ResolvedConfig, network: NetSpec, smallest: PartyInfo, names: Sequence[str], simulated: bool
) -> None:
    """Refuse a batch that a simulated party cannot fill, and a single row where rows are normalised over a batch.

    A natural party, or a site, with fewer rows than a batch trains on all of them at once.
    """
    rows, batch = smallest.rows, config.train.batch
    name = names[smallest.party] if smallest.party < len(names) else smallest.party
    if rows < batch and simulated:
        more = f"--floor {batch}" if config.data.population is None else f"--rows-per-party {batch}"
        raise UserError(
            f"party {name} has {counted(rows, 'row')}, fewer than a batch of {batch}; use --batch {rows} or smaller, "
            f"or {more}"
        )
    if min(rows, batch) < MIN_NORMALISED_ROWS and (config.model.norm == "batch" or normalises_rows(build(network))):
        more = ", or a larger --batch" if rows >= MIN_NORMALISED_ROWS else f", or leave out party {name}"
        raise UserError(
            f"party {name} trains on {counted(min(rows, batch), 'row')} at a time, batch normalisation needs "
            f"{MIN_NORMALISED_ROWS}; use a network without it (--norm group or none){more}"
        )
