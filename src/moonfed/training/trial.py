"""A trial: one seeded run, set up and ready for its next round."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch

from moonfed.algorithms import ALGORITHMS
from moonfed.core.errors import UserError
from moonfed.core.rules import Algorithm
from moonfed.core.seeds import torch_seeded
from moonfed.core.tree import tree_map
from moonfed.core.types import PartyInfo, Population, Slots, Snapshot, State, Tensors
from moonfed.data import DATASETS, Dataset
from moonfed.data.augment import sample_inputs
from moonfed.data.partition import Rows, Split, class_counts, partition
from moonfed.data.readers import read_dataset
from moonfed.engines import Engine, Nets, Options, nets_of, pick_device, pick_engine, pick_precision
from moonfed.models import ENCODERS, EncoderSpec, Model, other_tensors, trained_tensors
from moonfed.models.custom import CustomEncoder, is_custom, load_custom, measure_encoder
from moonfed.training.cohort import Cohorts
from moonfed.training.config import Config
from moonfed.training.data_config import DataSettings, reader_options
from moonfed.training.registry import make_algorithm
from moonfed.training.validation_rows import hold_out

COMPILING_PAYS = 400_000  # party-steps of a command: the seconds that compiling takes are earned back by then


class RunContext(NamedTuple):
    """What the trials of one command share: data, network and engine."""

    data: Dataset
    nets: Nets
    engine: Engine
    own: CustomEncoder | None = None  # the user's encoder, if it is not one of ours


@dataclass
class Trial:
    """One seeded run: what it is made of, and where it stands."""

    config: Config
    algorithm: Algorithm
    device: torch.device
    spec: "NetSpec"
    parts: list[Rows]
    facts: list[PartyInfo]
    cohorts: Cohorts
    state: State
    names: tuple[str, ...] = ()  # of the parties, where they have names
    held: list[Rows] | None = None  # of each party, held out of training, if the models are judged on these
    memory: dict[int, Slots] = field(default_factory=dict)
    round: int = 0  # rounds done
    failure: str | None = None
    frozen: Tensors = field(default_factory=dict)  # the weights that never learn: the network's, not the state's

    @property
    def natural(self) -> bool:
        """Whether each party holds the rows that are its own."""
        return self.config.data.partition == "natural" and not ALGORITHMS[self.config.algorithm.name].pooled

    @property
    def population(self) -> Population:
        """All parties together."""
        return Population(len(self.facts), sum(fact.rows for fact in self.facts))

    def name(self, party: int) -> str:
        """Call a party by its name, or by its number."""
        return self.names[party] if party < len(self.names) else str(party)

    def fresh(self, name: str) -> Snapshot:
        """Make the trial's random model of a name."""
        return fresh_model(self.spec, self.config.run.seed, name, self.device)


class NetSpec(NamedTuple):
    """What decides a network's shape."""

    encoder: str
    shape: EncoderSpec
    classes: int
    projection: int
    own: CustomEncoder | None = None


def resolve(config: Config, data: Dataset, own: CustomEncoder | None = None) -> Config:
    """Fill in the settings whose default depends on others."""
    split = _resolved_split(config, data)
    train = config.train.model_copy(update={"batch": config.train.batch or _default_batch(config, data)})
    encoder = data.encoder if config.model.model == "auto" else config.model.model
    encoder = encoder if own is None else own.name
    ours = ENCODERS.get(encoder)
    if ours is None and config.model.norm != "auto":
        raise UserError(f"an encoder of your own has its own normalisation; leave --norm {config.model.norm} away")
    norm = config.model.norm if config.model.norm != "auto" or ours is None else ours.norm
    model = config.model.model_copy(update={"model": encoder, "norm": norm})
    precision = pick_precision(config.run.precision, data.inputs.device, encoder)
    run = config.run.model_copy(update={"precision": precision})
    return config.model_copy(update={"data": split, "train": train, "model": model, "run": run})


def _default_batch(config: Config, data: Dataset) -> int:
    """The data's own batch; of a user's own data, no more than the smallest party trains on."""
    split = _resolved_split(config, data)
    if split.path is None:
        return data.batch
    rows = split.floor
    if split.partition == "natural" and data.party is not None:
        rows = int(torch.bincount(data.party, minlength=len(data.party_names)).min())
    held = max(1, int(split.validation * rows + 0.5)) if split.validation else 0
    return max(1, min(data.batch, rows - held))


def _resolved_split(config: Config, data: Dataset) -> DataSettings:
    split = config.data
    update: dict[str, Any] = {
        "partition_seed": config.run.seed if split.partition_seed is None else split.partition_seed
    }
    if split.partition == "auto":
        update["partition"] = "dirichlet" if data.party is None else "natural"
    if update.get("partition", split.partition) == "natural" and data.party is not None:
        update["parties"] = len(data.party_names)
        if "parties" in split.model_fields_set and split.parties != len(data.party_names):
            raise UserError(
                f"{data.name} has {len(data.party_names)} parties of its own, got --parties {split.parties}; leave it "
                "away, or split the rows anew with --partition dirichlet"
            )
    elif split.path is not None and "floor" not in split.model_fields_set:  # parties that can fill a batch
        update["floor"] = max(1, min(data.batch, len(data.labels) // (2 * split.parties)))
    return split.model_copy(update=update)


def load_data(settings: DataSettings) -> Dataset:
    """Load the data set of a name, or read the user's own."""
    if settings.path is None:
        return DATASETS[settings.dataset]()
    return read_dataset(settings.path, reader_options(settings))


def open_context(
    config: Config,
    trials: int = 1,
    say: Callable[[str], None] = lambda line: None,
    data: Dataset | None = None,
    own: CustomEncoder | None = None,
) -> RunContext:
    """Load data and encoder, unless given, and set up the engine; it says what it has to say in a line."""
    device = pick_device(config.run.device)
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device.type == "cuda" and (device.index or 0) >= gpus:
        there = f"the last is cuda:{gpus - 1}" if gpus else "there is none"
        raise UserError(
            f"device {config.run.device} needs a GPU that torch can use, and {there}; use --device cpu or auto"
        )
    if config.run.threads:
        torch.set_num_threads(config.run.threads)
    data = (data or load_data(config.data)).to(device)
    if own is None and is_custom(config.model.model):
        own = load_custom(config.model.model)
    own = own and measure_encoder(own, sample_inputs(data), data.words)
    resolved = resolve(config, data, own)
    nets = nets_of(network(net_spec(resolved, data, own)).to(device))
    assert resolved.train.batch is not None
    steps = trials * config.train.rounds * config.train.epochs * len(data.labels) // resolved.train.batch
    long_enough = config.cohort.fraction * steps >= COMPILING_PAYS
    asked = resolved.run.precision if config.run.precision == "auto" else config.run.precision
    options = Options(asked, config.run.lanes, config.run.compile and long_enough, say)
    return RunContext(data, nets, pick_engine(config.run.engine, nets, data, options), own)


def net_spec(config: Config, data: Dataset, own: CustomEncoder | None = None) -> NetSpec:
    """Read the shape of the network from resolved settings and data."""
    shape = EncoderSpec(tuple(data.inputs.shape[1:]), config.model.norm, data.words)
    if own is not None:
        return NetSpec(own.name, shape, data.classes, config.model.projection, own)
    if config.model.model not in ENCODERS:
        raise UserError(
            f"the encoder {config.model.model} is not part of this package; it works where --model FILE.py:NAME names "
            "it (run, compare, sweep, predict, export): no code is run because a run folder or a coordinator names it"
        )
    takes = ENCODERS[config.model.model].takes
    is_words = takes == "words"
    if is_words != bool(data.words) or (takes == "images" and data.inputs.dim() != 4):
        kind = "words" if data.words else "images" if data.inputs.dim() == 4 else "numbers"
        fitting = [name for name, own in ENCODERS.items() if own.takes in _may_take(kind)]
        raise UserError(
            f"encoder {config.model.model} takes {takes}, {data.name} has {kind}; use --model {' or '.join(fitting)}"
        )
    return NetSpec(config.model.model, shape, data.classes, config.model.projection)


def _may_take(kind: str) -> tuple[str, ...]:
    return ("images", "numbers") if kind == "images" else (kind,)


def party_name(config: Config, data: Dataset, party: int) -> str:
    """Call a party by its name, where the split is the data's own, or by its number."""
    named = config.data.partition == "natural" and len(data.party_names) > party
    return data.party_names[party] if named else str(party)


def build(spec: NetSpec) -> Model:
    """Build a network; its weights come from torch's stream as it stands."""
    if spec.own is not None:
        return Model(spec.own.build(spec.shape), spec.classes, spec.projection, spec.own.features)
    return Model(ENCODERS[spec.encoder](spec.shape), spec.classes, spec.projection)


def network(spec: NetSpec) -> Model:
    """Build a network for its code, and for the weights in it that never learn: those are the same for every seed."""
    with torch_seeded(0, "init", "network"):
        return build(spec)


def fresh_model(spec: NetSpec, seed: int, name: str, device: torch.device) -> Snapshot:
    """Make the random model that a seed and a name decide, drawn on the CPU so that every device gets the same."""
    with torch_seeded(seed, "init", name):
        model = build(spec)
    return tree_map(lambda t: t.to(device), trained_tensors(model))


def split_rows(config: Config, data: Dataset) -> list[Rows]:
    """Say which training rows each party trains on."""
    return hold_out(_whole_split(config, data), config.data.validation, config.run.seed)[0]


def held_rows(config: Config, data: Dataset) -> list[Rows] | None:
    """Say which training rows of each party are held out of training; None if none are asked for."""
    share = config.data.validation
    return hold_out(_whole_split(config, data), share, config.run.seed)[1] if share else None


def _whole_split(config: Config, data: Dataset) -> list[Rows]:
    """Split the training rows as a config says; a pooled algorithm gets them all in one place."""
    labels = data.labels.cpu().numpy()
    if ALGORITHMS[config.algorithm.name].pooled:
        return [np.arange(len(labels))]
    settings = _resolved_split(config, data)
    party = None if data.party is None else data.party.cpu().numpy()
    if settings.parties > len(labels):
        raise UserError(
            f"{settings.parties} parties need at least as many rows, the data has {len(labels)}; use fewer --parties"
        )
    assert settings.partition_seed is not None
    floor = 1 if settings.partition == "natural" else settings.floor
    split = Split(settings.parties, settings.beta, settings.classes_per_party, floor, settings.partition_seed, party)
    return partition(settings.partition, labels, split)


def set_up(config: Config, bench: RunContext) -> Trial:
    """Set a trial up before its first round, from resolved settings."""
    data = bench.data
    parts = split_rows(config, data)
    counts = class_counts(data.labels.cpu().numpy(), parts, data.classes)
    facts = [PartyInfo(i, len(part), tuple(counts[i])) for i, part in enumerate(parts)]
    trial = begun(config, data, parts, facts, bench.own)
    trial.frozen = other_tensors(bench.nets.frozen, trial.state.model)
    trial.held = held_rows(config, data)
    return trial


def begun(
    config: Config, data: Dataset, parts: list[Rows], facts: list[PartyInfo], own: CustomEncoder | None = None
) -> Trial:
    """Put a trial before its first round; where parties are elsewhere there are facts of them and no parts."""
    batch = config.train.batch
    assert batch is not None
    small = min(facts, key=lambda fact: fact.rows)
    if small.rows < batch:
        natural = config.data.partition == "natural"
        raise UserError(
            f"party {party_name(config, data, small.party)} has {small.rows} rows, fewer than a batch of {batch}; "
            f"use --batch {small.rows} or smaller" + ("" if natural else f", or --floor {batch}")
        )
    settings = config.algorithm
    algorithm = make_algorithm(settings.name, settings.server, settings.options)
    device, spec = data.inputs.device, net_spec(config, data, own)
    model = fresh_model(spec, config.run.seed, "model", device)
    trial = Trial(config, algorithm, device, spec, parts, facts, Cohorts(config, facts), State(model, {}, {}))
    trial.names = data.party_names if trial.natural else ()
    sent, kept = algorithm.server.init(model, trial.fresh)
    trial.state = State(model, sent, kept)
    return trial
