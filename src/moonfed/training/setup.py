"""From settings to trials that are ready to run: data, encoder, network and engine are set up once per command."""

import logging
from collections.abc import Sequence
from functools import cache

from moonfed.data import DATASETS, Dataset
from moonfed.data.augment import sample_inputs
from moonfed.data.readers import read_dataset
from moonfed.engines import EngineOptions, nets_of, pick_device, pick_engine
from moonfed.engines.devices import is_gpu, set_threads
from moonfed.models import ENCODERS, frozen_tensors
from moonfed.models.custom import CustomEncoder, load_custom, measure_encoder
from moonfed.training.config import Config
from moonfed.training.network import build, net_spec
from moonfed.training.resolve import ResolvedConfig, resolve, training_size
from moonfed.training.settings import DataSettings
from moonfed.training.topology_file import EdgeReader, read_edges, warn_of_parts, with_edges
from moonfed.training.trial import RunContext, Trial, new_trial
from moonfed.training.user_data import reader_options

logger = logging.getLogger(__name__)
MIN_STEPS_TO_COMPILE = 400_000  # party-steps of a command: compiling takes longer than it saves below


def set_up(
    configs: Sequence[Config],
    labels: Sequence[str] = (),
    data: Dataset | None = None,
    custom: CustomEncoder | None = None,
) -> tuple[RunContext, list[Trial]]:
    """Set trials up that share data, network and engine; data and custom encoder are loaded unless given."""
    asked = configs[0]
    data = load_data(asked.data, asked.run.device) if data is None else data.to(pick_device(asked.run.device))
    if asked.run.threads:
        set_threads(asked.run.threads)
    name = asked.model.model
    if custom is None and name != "auto" and name not in ENCODERS:
        custom = load_custom(name)
    custom = custom and measure_encoder(custom, sample_inputs(data), data.words)

    read = cache(read_edges)  # once for all trials
    resolved = [_with_graph(resolve(config, data, custom), data, read) for config in configs]
    warn_of_parts(resolved)
    first, run = resolved[0], asked.run
    model = build(net_spec(first, data, custom)).to(data.inputs.device)
    frozen, nets = frozen_tensors(model), nets_of(model, data)
    rows = training_size(first, first.data, data)
    steps = len(resolved) * first.train.rounds * first.train.epochs * rows // first.train.batch
    compile = run.compile and first.cohort.fraction * steps >= MIN_STEPS_TO_COMPILE
    precision = first.run.precision if run.precision == "auto" else run.precision
    options = EngineOptions(precision, run.lanes, compile, slices=run.slices or 1)
    engine = pick_engine(run.engine, nets, data, options)

    context = RunContext(data, nets, engine, custom, frozen)
    names = labels or [""] * len(resolved)
    trials = [new_trial(config, context, label) for config, label in zip(resolved, names, strict=True)]
    for trial in {trial.algorithm.name: trial for trial in trials}.values():
        warn_of_nothing_private(trial)
    return context, trials


def nothing_private(trial: Trial) -> str:
    """Say that a rule keeps nothing at the parties because the network has no such layers; empty if it does."""
    kinds = trial.algorithm.local.private
    if not kinds or trial.spec.private:
        return ""
    return f"its parties keep their {' and '.join(sorted(kinds))} layers, and {trial.config.model.model} has none"


def warn_of_nothing_private(trial: Trial) -> None:
    """Say that a personal method is FedAvg with this network."""
    if why := nothing_private(trial):
        logger.warning("%s: %s, so nothing stays at the parties; use norm batch", trial.algorithm.name, why)


def _with_graph(config: ResolvedConfig, data: Dataset, read: EdgeReader) -> ResolvedConfig:
    """Read the file of edges, if the parties' graph is in one."""
    names = data.party_names if config.data.partition == "natural" else ()
    return with_edges(config, config.data.parties, names, read)


def load_data(settings: DataSettings, device: str = "cpu", needs_holdout: bool = False) -> Dataset:
    """Load the data set of a name, or read the user's file or folder; a device that is not there is refused before.

    With needs_holdout, data that comes with test rows is refused.
    """
    place = pick_device(device)
    if settings.path is None:
        data = DATASETS[settings.dataset]()
    else:
        data = read_dataset(settings.path, reader_options(settings), needs_holdout=needs_holdout)
    return data.to(place) if is_gpu(place) else data
