"""Settings that only a federation has: how long to wait for sites, and what to reject."""

from typing import Any

from pydantic import Field, ValidationError

from moonfed.core.errors import UserError, unknown
from moonfed.training.config import Section, flag_in

SIGNS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}


class FederationSettings(Section):
    """Deadline, quorum and limits; they decide which replies count, not what is computed from them."""

    deadline: float = Field(600.0, gt=0, le=1e6, description="seconds that a round waits for replies")
    quorum: float = Field(0.5, gt=0, le=1, description="fraction of the cohort that must reply for a round to count")
    attempts: int = Field(3, ge=1, le=1000, description="attempts at a round before the run stops for lack of replies")
    patience: float = Field(30.0, ge=0, le=1e6, description="seconds to wait for a disconnected site to return")
    norm: float = Field(
        10.0,
        ge=0,
        le=1e9,
        description="reject updates whose norm exceeds this multiple of the round's median; 0: no limit",
        json_schema_extra={"flag": "--norm-limit"},
    )
    rows: float = Field(
        100.0,
        ge=1,
        le=1e9,
        description="reject sites that report more rows than this multiple of the median",
        json_schema_extra={"flag": "--rows-limit"},
    )


def make_federation_settings(given: dict[str, Any]) -> FederationSettings:
    """Make the settings, or name the flag that is out of range."""
    try:
        return FederationSettings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "extra_forbidden":
            raise unknown("setting in [federation]", str(first["loc"][0]), FederationSettings.model_fields) from None
        name, limits = str(first["loc"][0]), first.get("ctx", {})
        bound = next((f"a value {sign} {limits[key]:g}" for key, sign in SIGNS.items() if key in limits), None)
        finite = "finite " if first["type"] == "finite_number" else ""
        kind = "a whole number" if FederationSettings.model_fields[name].annotation is int else f"a {finite}number"
        flag = flag_in(FederationSettings, name)
        raise UserError(f"federation.{name} needs {bound or kind}, got {first['input']}; set it with {flag}") from None
