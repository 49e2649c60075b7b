"""From settings to trials that are ready to run: data, encoder, network and engine are set up once per command."""

from collections.abc import Sequence

from moonfed.data import DATASETS, Dataset
from moonfed.data.augment import sample_inputs
from moonfed.data.readers import read_dataset
from moonfed.engines import EngineOptions, nets_of, pick_device, pick_engine
from moonfed.engines.devices import is_gpu, set_threads
from moonfed.models import ENCODERS, frozen_tensors
from moonfed.models.custom import CustomEncoder, load_custom, measure_encoder
from moonfed.training.config import Config
from moonfed.training.network import build, net_spec
from moonfed.training.resolve import resolve
from moonfed.training.settings import DataSettings
from moonfed.training.trial import RunContext, Trial, new_trial
from moonfed.training.user_data import reader_options

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

    resolved = [resolve(config, data, custom) for config in configs]
    first, run = resolved[0], asked.run
    model = build(net_spec(first, data, custom)).to(data.inputs.device)
    frozen, nets = frozen_tensors(model), nets_of(model, data)
    steps = len(resolved) * first.train.rounds * first.train.epochs * len(data.labels) // first.train.batch
    compile = run.compile and first.cohort.fraction * steps >= MIN_STEPS_TO_COMPILE
    precision = first.run.precision if run.precision == "auto" else run.precision
    engine = pick_engine(run.engine, nets, data, EngineOptions(precision, run.lanes, compile))

    context = RunContext(data, nets, engine, custom, frozen)
    names = labels or [""] * len(resolved)
    return context, [new_trial(config, context, label) for config, label in zip(resolved, names, strict=True)]


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
