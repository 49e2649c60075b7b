"""Which runs can be federated. The coordinator checks before it starts, each site before it trains."""

from moonfed.core.errors import UserError
from moonfed.models.custom import is_custom
from moonfed.training.config import Config
from moonfed.training.registry import preset_of


def check_federable(config: Config) -> None:
    """Reject settings that cannot be federated.

    Sites check as well, so that no coordinator can make them run code or read files of their machine.
    """
    name, settings = config.algorithm.name, config.algorithm
    preset = preset_of(name, settings.server)
    if preset.pooled:
        raise UserError(f"{name} needs all rows in one place, so it cannot be federated; use moonfed run")
    if preset.personal and not preset.local.own_rows:
        raise UserError(f"{name} trains one model per party and sends nothing, so it cannot be federated")
    if config.data.path is not None and config.data.partition not in ("auto", "natural"):
        raise UserError(
            f"--partition {config.data.partition} splits one data set, but in a federation each site has its own rows; "
            "omit --partition"
        )
    if config.data.population is not None:
        raise UserError(f"--population {config.data.population} simulates parties, a federation has sites; omit it")
    if config.run.checkpoint_every > 1:
        raise UserError(
            f"--checkpoint-every {config.run.checkpoint_every} leaves rounds to be repeated, and sites repeat the last "
            "one only; omit it in a federation"
        )
    if is_custom(config.model.model):
        raise UserError(
            f"sites do not run code that is sent to them, so the encoder {config.model.model} cannot be federated; "
            "use a built-in --model"
        )
    for flag, wanted in (("--patience", config.train.patience), ("--calibrate", config.train.calibrate)):
        if wanted:
            raise UserError(f"{flag} needs training rows, which a coordinator does not have; omit it in a federation")
    if config.data.monitor:
        raise UserError("--monitor needs training rows, which a coordinator does not have; omit it in a federation")
    if config.data.validation:
        raise UserError("--validation needs training rows, which a coordinator does not have; omit it in a federation")
