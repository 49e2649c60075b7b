"""From settings to trials that are ready to run: data, encoder, network and engine are set up once per command."""

from collections.abc import Sequence

from moonfed.data import DATASETS, Dataset
from moonfed.data.augment import sample_inputs
from moonfed.data.readers import read_dataset
from moonfed.engines import EngineOptions, nets_of, pick_device, pick_engine
from moonfed.engines.devices import set_threads
from moonfed.models import ENCODERS, frozen_tensors
from moonfed.models.custom import CustomEncoder, load_custom, measure_encoder
from moonfed.training.config import Config
from moonfed.training.network import net_spec, network
from moonfed.training.resolve import ResolvedConfig, resolve
from moonfed.training.settings import DataSettings, reader_options
from moonfed.training.trial import RunContext, Trial, new_trial

MIN_STEPS_TO_COMPILE = 400_000  # party-steps of a command: compiling takes longer than it saves below


def set_up(
    configs: Sequence[Config],
    labels: Sequence[str] = (),
    data: Dataset | None = None,
    custom: CustomEncoder | None = None,
) -> tuple[RunContext, list[Trial]]:
    """Set trials up that share data, network and engine; data and custom encoder are loaded unless given."""
    first = configs[0]
    data, custom = load_inputs(first, data, custom)
    resolved = [resolve(config, data, custom) for config in configs]
    context = make_context(first, resolved, data, custom)
    names = labels or [""] * len(resolved)
    return context, [new_trial(config, context, label) for config, label in zip(resolved, names, strict=True)]


def load_inputs(
    config: Config, data: Dataset | None = None, custom: CustomEncoder | None = None
) -> tuple[Dataset, CustomEncoder | None]:
    """Load the data to its device, and the user's encoder if there is one."""
    device = pick_device(config.run.device)
    set_threads(config.run.threads)
    data = (data or load_data(config.data)).to(device)
    name = config.model.model
    if custom is None and name != "auto" and name not in ENCODERS:
        custom = load_custom(name)
    return data, custom and measure_encoder(custom, sample_inputs(data), data.words)


def load_data(settings: DataSettings) -> Dataset:
    """Load the data set of a name, or read the user's file or folder."""
    if settings.path is None:
        return DATASETS[settings.dataset]()
    return read_dataset(settings.path, reader_options(settings))


def make_context(
    asked: Config, resolved: Sequence[ResolvedConfig], data: Dataset, custom: CustomEncoder | None
) -> RunContext:
    """Build the network and the engine that trials share."""
    config, run = resolved[0], asked.run
    model = network(net_spec(config, data, custom)).to(data.inputs.device)
    nets, frozen = nets_of(model), frozen_tensors(model)
    rounds, epochs = config.train.rounds, config.train.epochs
    steps = len(resolved) * rounds * epochs * len(data.labels) // config.train.batch
    compile = run.compile and config.cohort.fraction * steps >= MIN_STEPS_TO_COMPILE
    precision = config.run.precision if run.precision == "auto" else run.precision
    engine = pick_engine(run.engine, nets, data, EngineOptions(precision, run.lanes, compile))
    return RunContext(data, nets, engine, custom, frozen)
