"""Defaults of local training that depend on the data: a small table needs fewer epochs and more regularisation.

They were chosen on real tables and checked on others: results/tables.md.
"""

from moonfed.core.errors import UserError
from moonfed.core.rules import Preset
from moonfed.training.settings import (
    DEFAULT_EPOCHS,
    DEFAULT_MONITOR,
    DEFAULT_WEIGHT_DECAY,
    DataSettings,
    TrainSettings,
)

STEPS_PER_CLASS = 10  # that an average party takes in a round on a table
MAX_TABLE_EPOCHS = 30
MAX_WEIGHT_DECAY = 0.01
SKEWED = ("dirichlet", "dirichlet-pure", "shards")  # partitions that give parties different classes


def with_defaults(
    train: TrainSettings, epochs: int = DEFAULT_EPOCHS, weight_decay: float = DEFAULT_WEIGHT_DECAY
) -> TrainSettings:
    """Fill in the epochs and the weight decay that were not given."""
    filled = {
        "epochs": epochs if train.epochs is None else train.epochs,
        "weight_decay": weight_decay if train.weight_decay is None else train.weight_decay,
    }
    return train.model_copy(update=filled)


def table_epochs(rows: int, parties: int, batch: int, classes: int, partition: str) -> int:
    """Return the epochs in which an average party takes about ten steps per class.

    There are 1 to 30 of them, and with a simulated label skew at least the published 10: fewer leave the classes that a
    party lacks to the others.
    """
    steps = max(rows, 1) / (parties * batch)
    epochs = max(1, min(MAX_TABLE_EPOCHS, round(STEPS_PER_CLASS * classes / steps)))
    return max(epochs, DEFAULT_EPOCHS) if partition in SKEWED else epochs


def table_weight_decay(rows: int) -> float:
    """Return 1 / rows to one digit, at most 0.01: the penalty of logistic regression in scikit-learn with C = 1."""
    return max(DEFAULT_WEIGHT_DECAY, float(f"{min(MAX_WEIGHT_DECAY, 1 / max(rows, 1)):.1g}"))


def settle_monitor(data: DataSettings, train: TrainSettings, preset: Preset) -> DataSettings:
    """Fill in the fraction of rows that is set aside, or refuse early stopping and calibration without such rows."""
    flag = "--patience" if train.patience else "--calibrate" if train.calibrate else None
    if flag is None:
        return data.model_copy(update={"monitor": data.monitor or 0.0})
    if preset.personal:
        raise UserError(f"{flag} needs one global model, {preset.name} trains one per party; omit {flag}")
    if data.monitor == 0:
        raise UserError(f"{flag} needs training rows set aside; omit --monitor 0, or use --monitor {DEFAULT_MONITOR}")
    return data.model_copy(update={"monitor": data.monitor or DEFAULT_MONITOR})
