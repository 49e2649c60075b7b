"""Defaults of local training that depend on the data: a table has its own epochs, weight decay and schedule.

They were chosen on real tables and checked on others: results/tables.md.
"""

from typing import Any

from moonfed.core.algorithm import Preset
from moonfed.core.errors import UserError
from moonfed.training.settings import (
    DEFAULT_EPOCHS,
    DEFAULT_LR_SCHEDULE,
    DEFAULT_MONITOR,
    DEFAULT_WEIGHT_DECAY,
    DataSettings,
    TrainSettings,
)

USUAL = {"epochs": DEFAULT_EPOCHS, "weight_decay": DEFAULT_WEIGHT_DECAY, "lr_schedule": DEFAULT_LR_SCHEDULE}

STEPS_PER_CLASS = 10  # that an average party takes in a round on a table
MIN_TABLE_EPOCHS, MAX_TABLE_EPOCHS = 5, 30
MAX_WEIGHT_DECAY = 0.01
TABLE_LR_SCHEDULE = "cosine"  # the last rounds no longer learn rows by heart, nor drift apart
SKEWED = ("dirichlet", "dirichlet-pure", "shards")  # partitions that give parties different classes


def with_defaults(train: TrainSettings, defaults: dict[str, Any] = USUAL) -> TrainSettings:
    """Fill in the settings that were not given."""
    return train.model_copy(update={name: value for name, value in defaults.items() if getattr(train, name) is None})


def table_defaults(rows: int, parties: int, batch: int, classes: int, partition: str) -> dict[str, Any]:
    """Return the defaults of a user's table with so many training rows in all."""
    return {
        "epochs": table_epochs(rows, parties, batch, classes, partition),
        "weight_decay": table_weight_decay(rows),
        "lr_schedule": TABLE_LR_SCHEDULE,
    }


def table_epochs(rows: int, parties: int, batch: int, classes: int, partition: str) -> int:
    """Return the epochs in which an average party takes about ten steps per class.

    There are 5 to 30 of them, and with a simulated label skew at least the published 10: fewer leave the classes that a
    party lacks to the others.
    """
    steps = max(rows, 1) / (parties * batch)
    epochs = max(MIN_TABLE_EPOCHS, min(MAX_TABLE_EPOCHS, round(STEPS_PER_CLASS * classes / steps)))
    return max(epochs, DEFAULT_EPOCHS) if partition in SKEWED else epochs


def table_weight_decay(rows: int) -> float:
    """Return 1 / rows to one digit, at most 0.01: the penalty of logistic regression in scikit-learn with C = 1."""
    return max(DEFAULT_WEIGHT_DECAY, float(f"{min(MAX_WEIGHT_DECAY, 1 / max(rows, 1)):.1g}"))


def settle_monitor(data: DataSettings, train: TrainSettings, preset: Preset) -> DataSettings:
    """Fill in the fraction of rows that is set aside, or refuse early stopping and calibration without such rows."""
    flag = "--patience" if train.patience else "--calibrate" if train.calibrate else None
    asked = flag or ("--monitor" if data.monitor else None)
    if asked and (preset.personal or preset.sends_own_models):
        raise UserError(f"{asked} needs one global model, {preset.name} trains one per party; omit {asked}")
    if flag is None:
        return data.model_copy(update={"monitor": data.monitor or 0.0})
    if data.monitor == 0:
        raise UserError(f"{flag} needs training rows set aside; omit --monitor 0, or use --monitor {DEFAULT_MONITOR}")
    return data.model_copy(update={"monitor": data.monitor or DEFAULT_MONITOR})
