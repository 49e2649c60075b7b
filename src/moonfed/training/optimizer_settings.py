"""What follows from the choice of the local optimiser: which methods it suits, its learning rate."""

from moonfed.core.algorithm import Preset
from moonfed.core.errors import UserError
from moonfed.engines.local_optimizer import OPTIMIZERS
from moonfed.training.settings import TrainSettings


def settle_optimizer(train: TrainSettings, preset: Preset) -> TrainSettings:
    """Refuse an optimiser that a method or a setting does not fit; fill in its own learning rate.

    An optimiser without momentum has momentum 0 from here on, which is also accepted: recorded settings are read again.
    """
    name, optimizer = train.optimizer, OPTIMIZERS[train.optimizer]
    needs_sgd = preset.local.needs_sgd or preset.aggregator.needs_sgd
    if needs_sgd and name != "sgd":
        raise UserError(
            f"{preset.name} needs --optimizer sgd, got {name}: {needs_sgd}; omit --optimizer, or use another "
            "algorithm, for example moon, fedavg or fedprox"
        )
    settled: dict[str, float] = {}
    if not optimizer.has_momentum:
        if "momentum" in train.model_fields_set and train.momentum:
            raise UserError(f"--momentum is for --optimizer sgd, {name} has moments of its own; omit --momentum")
        settled["momentum"] = 0.0
    if optimizer.default_lr is not None and "lr" not in train.model_fields_set:
        settled["lr"] = optimizer.default_lr
    return train.model_copy(update=settled) if settled else train
