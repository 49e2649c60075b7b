"""Defaults of local training that depend on the data: a small table needs fewer epochs and more regularisation.

They were chosen on real tables and checked on others: results/tables.md.
"""

from moonfed.training.settings import DEFAULT_EPOCHS, DEFAULT_WEIGHT_DECAY, TrainSettings

STEPS_PER_ROUND = 20  # that an average party takes on a table
MAX_WEIGHT_DECAY = 0.01  # on a table of 1,000 rows or fewer; for more rows it falls as 1 / rows


def with_defaults(
    train: TrainSettings, epochs: int = DEFAULT_EPOCHS, weight_decay: float = DEFAULT_WEIGHT_DECAY
) -> TrainSettings:
    """Fill in the epochs and the weight decay that were not given."""
    filled = {
        "epochs": epochs if train.epochs is None else train.epochs,
        "weight_decay": weight_decay if train.weight_decay is None else train.weight_decay,
    }
    return train.model_copy(update=filled)


def table_epochs(rows: int, parties: int, batch: int) -> int:
    """Return the epochs in which an average party takes about 20 steps, at least 1 and at most 10."""
    steps = max(rows, 1) / (parties * batch)
    return max(1, min(DEFAULT_EPOCHS, round(STEPS_PER_ROUND / steps)))


def table_weight_decay(rows: int) -> float:
    """Return 10 / rows to one digit: the weight of a prior falls as the rows increase."""
    decay = min(MAX_WEIGHT_DECAY, 1000 * MAX_WEIGHT_DECAY / max(rows, 1))
    return max(DEFAULT_WEIGHT_DECAY, float(f"{decay:.1g}"))
