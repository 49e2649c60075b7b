"""From what the user asked to what is run: every default that depends on the data is decided here, once."""

from typing import Any

from moonfed.core.errors import UserError
from moonfed.data import Dataset
from moonfed.engines import pick_precision
from moonfed.models import ENCODERS
from moonfed.models.custom import CustomEncoder
from moonfed.training.config import Config, TrainSettings
from moonfed.training.data_defaults import USUAL, table_defaults, table_weight_decay, with_defaults
from moonfed.training.registry import ALGORITHMS
from moonfed.training.settings import DataSettings
from moonfed.training.validation_rows import rows_left


class ResolvedData(DataSettings):
    """The data settings with the split decided; how a user's file is read stays as the user said it."""

    partition_seed: int  # pyright: ignore[reportIncompatibleVariableOverride, reportGeneralTypeIssues]
    monitor: float  # pyright: ignore[reportIncompatibleVariableOverride, reportGeneralTypeIssues]


class ResolvedTrain(TrainSettings):
    """The training settings with batch size, epochs, weight decay and schedule decided."""

    batch: int  # pyright: ignore[reportIncompatibleVariableOverride, reportGeneralTypeIssues]
    epochs: int  # pyright: ignore[reportIncompatibleVariableOverride, reportGeneralTypeIssues]
    weight_decay: float  # pyright: ignore[reportIncompatibleVariableOverride, reportGeneralTypeIssues]
    lr_schedule: str  # pyright: ignore[reportIncompatibleVariableOverride, reportGeneralTypeIssues]


class ResolvedConfig(Config):
    """The settings of a trial with nothing left open: no "auto", no default that depends on the data."""

    data: ResolvedData  # pyright: ignore[reportIncompatibleVariableOverride, reportGeneralTypeIssues]
    train: ResolvedTrain  # pyright: ignore[reportIncompatibleVariableOverride, reportGeneralTypeIssues]


def resolve(
    config: Config, data: Dataset, custom: CustomEncoder | None = None, rows: int | None = None
) -> ResolvedConfig:
    """Decide the settings whose default depends on the data or the encoder.

    rows is the number of training rows of all parties, where they are not in the data.
    """
    split = resolve_split(config, data)
    batch = config.train.batch or _default_batch(split, data)
    rows = training_size(config, split, data) if rows is None else rows
    table = is_table(split, data)
    defaults = table_defaults(rows, split.parties, batch, data.classes, split.partition) if table else USUAL
    if table and split.population is not None:  # rows that are drawn twice do not regularise
        defaults = defaults | {"weight_decay": table_weight_decay(min(rows, len(data.labels)))}
    train = with_defaults(config.train, defaults)
    encoder = data.encoder if config.model.model == "auto" else config.model.model
    encoder = encoder if custom is None else custom.name
    ours = ENCODERS.get(encoder)
    if ours is None and config.model.norm != "auto":
        raise UserError(f"a custom encoder brings its own normalisation; omit --norm {config.model.norm}")
    norm = config.model.norm if config.model.norm != "auto" or ours is None else ours.norm
    precision = pick_precision(config.run.precision, data.inputs.device)
    return ResolvedConfig.model_construct(
        data=split,
        model=config.model.model_copy(update={"model": encoder, "norm": norm}),
        algorithm=config.algorithm,
        train=ResolvedTrain.model_construct(train.model_fields_set, **dict(train) | {"batch": batch}),
        cohort=config.cohort,
        run=config.run.model_copy(update={"precision": precision}),
    )


def training_size(config: Config, split: DataSettings, data: Dataset) -> int:
    """Return the training rows of all parties; virtual ones draw the same row several times."""
    if split.population is None or ALGORITHMS[config.algorithm.name].pooled:
        return len(data.labels)
    return split.parties * split.rows_per_party


def is_table(split: DataSettings, data: Dataset) -> bool:
    """Whether the data is a user's table: rows of numbers, not words; data sets of the catalog have fixed defaults."""
    return split.path is not None and data.inputs.dim() == 2 and not data.words


def resolve_split(config: Config, data: Dataset) -> ResolvedData:
    """Decide how the rows are split between parties."""
    split, seed = config.data, config.data.partition_seed
    update: dict[str, Any] = {"partition_seed": config.run.seed if seed is None else seed}
    update["monitor"] = split.monitor or 0.0
    if split.partition == "auto":
        update["partition"] = "dirichlet" if data.party is None else "natural"
    if update.get("partition", split.partition) == "natural" and data.party is not None:
        update["parties"] = len(data.party_names)
        if "parties" in split.model_fields_set and split.parties != len(data.party_names):
            raise UserError(
                f"{data.name} has {len(data.party_names)} parties of its own, got --parties {split.parties}; omit it, "
                "or split the rows anew with --partition dirichlet"
            )
    elif split.path is not None and "floor" not in split.model_fields_set:  # parties that can fill a batch
        update["floor"] = max(1, min(data.batch, len(data.labels) // (2 * split.parties)))
    return ResolvedData.model_construct(split.model_fields_set, **dict(split) | update)


def _default_batch(split: ResolvedData, data: Dataset) -> int:
    """The data set's own batch size; for a simulated split of user data, no more than every party has."""
    if split.population is not None:
        return min(data.batch, split.rows_per_party)
    if split.path is None or split.partition == "natural":
        return data.batch
    return max(1, min(data.batch, rows_left(split.floor, split)))
