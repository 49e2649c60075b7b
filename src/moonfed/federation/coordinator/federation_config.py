"""How a federation waits and whom it takes: the settings that a simulation has no use for."""

from typing import Any

from pydantic import Field, ValidationError

from moonfed.core.errors import UserError
from moonfed.models.custom import is_custom
from moonfed.training.config import Config, Section, flag_in
from moonfed.training.registry import ALGORITHMS, make_algorithm


class FederationSettings(Section):
    """Deadline, quorum and what is refused; how the rounds are run, not what they compute."""

    deadline: float = Field(600.0, gt=0, le=1e6, description="most seconds that a round waits for replies")
    quorum: float = Field(0.5, gt=0, le=1, description="share of the cohort without whose replies no round counts")
    attempts: int = Field(3, ge=1, le=1000, description="times that a round without quorum is asked for")
    patience: float = Field(30.0, ge=0, le=1e6, description="seconds that a site which left may take to come back")
    norm: float = Field(
        10.0,
        ge=0,
        le=1e9,
        description="refuse updates longer than this many times the round's median; 0: none",
        json_schema_extra={"flag": "--norm-limit"},
    )
    rows: float = Field(
        100.0,
        ge=1,
        le=1e9,
        description="refuse sites that say they hold more rows than so many times the median",
        json_schema_extra={"flag": "--rows-limit"},
    )


def waiting(given: dict[str, Any]) -> FederationSettings:
    """Make the settings, or say in a line which one is out of range."""
    try:
        return FederationSettings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        flag = flag_in(FederationSettings, str(first["loc"][0]))
        raise UserError(f"{flag}: {str(first['msg']).lower()}, got {first['input']}") from None


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
