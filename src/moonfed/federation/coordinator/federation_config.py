"""How a federation waits and whom it takes: the settings that a simulation has no use for."""

from typing import Any

from pydantic import Field, ValidationError

from moonfed.core.errors import UserError
from moonfed.training.config import Section, flag_in


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
