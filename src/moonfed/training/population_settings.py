"""The settings of a virtual population, and what follows from them."""

from moonfed.core.algorithm import Preset
from moonfed.core.errors import UserError
from moonfed.training.settings import DEFAULT_ROWS_PER_PARTY, DataSettings

KIND = "virtual:"
MAX_PARTIES = 1_000_000  # as of --parties
MAX_OWN_MODELS = 1000
PARTITIONS_OF_POPULATION = ("dirichlet", "iid")


def with_population(data: DataSettings) -> DataSettings:
    """Fill in the number of parties and the split of a virtual population; refuse what it does not go with."""
    if data.population is None:
        if data.rows_per_party != DEFAULT_ROWS_PER_PARTY:
            raise UserError("--rows-per-party is for --population virtual:N; add that, or omit it")
        return data
    parties = int(data.population.removeprefix(KIND))
    if parties > MAX_PARTIES:
        raise UserError(f"--population needs at most {MAX_PARTIES} parties, got {data.population}")
    if "parties" in data.model_fields_set and data.parties != parties:
        raise UserError(f"--population {data.population} has {parties} parties, got --parties {data.parties}; omit one")
    split = "dirichlet" if data.partition == "auto" else data.partition
    if split not in PARTITIONS_OF_POPULATION:
        raise UserError(
            f"--population {data.population} draws rows with replacement, by {' or '.join(PARTITIONS_OF_POPULATION)}; "
            f"got --partition {split}"
        )
    for name in ("classes_per_party", "floor"):
        if getattr(data, name) != DataSettings.model_fields[name].default:
            flag = "--" + name.replace("_", "-")
            raise UserError(f"{flag} is for splits of the rows, --population {data.population} draws them; omit {flag}")
    if split == "dirichlet" and not data.beta > 0:
        raise UserError(f"--population {data.population} needs --beta > 0, got {data.beta}; use --partition iid")
    return data.model_copy(update={"parties": parties, "partition": split})


def check_population(data: DataSettings, preset: Preset) -> None:
    """Refuse a model for each party of a large population: all of them are held in memory and evaluated."""
    own_models = preset.personal or preset.sends_own_models
    if data.population is not None and own_models and data.parties > MAX_OWN_MODELS:
        raise UserError(
            f"{preset.name} trains a model for each party, so --population takes at most {MAX_OWN_MODELS} parties, got "
            f"{data.population}; use fewer, or an algorithm with one global model"
        )
