"""Which runs can be federated; coordinator and sites both check it."""

from moonfed.algorithms import ALGORITHMS
from moonfed.core.errors import UserError
from moonfed.models.custom import is_custom
from moonfed.training.config import Config
from moonfed.training.registry import make_algorithm


def check_federable(config: Config) -> None:
    """Refuse what cannot be federated; a site asks this too, so that no coordinator can name files of its machine."""
    name, settings = config.algorithm.name, config.algorithm
    if ALGORITHMS[name].pooled:
        raise UserError(f"{name} trains on all rows in one place, which is what a federation avoids; use moonfed run")
    if make_algorithm(name, settings.server, settings.options).local.own is not None:
        raise UserError(f"{name} trains a model a party that never leaves it: there is nothing to federate")
    if config.data.path is not None and config.data.partition not in ("auto", "natural"):
        raise UserError(
            f"--partition {config.data.partition} splits rows, and here each site has its own; leave it away"
        )
    if is_custom(config.model.model):
        raise UserError(
            f"sites have no encoder {config.model.model}, and run no code that is sent to them; use one of ours"
        )
    if config.data.validation:
        raise UserError("--validation holds rows out that a coordinator does not have; leave it away in a federation")
