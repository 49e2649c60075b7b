"""How a federation waits and whom it takes: the settings that a simulation has no use for."""

from pydantic import Field

from moonfed.run.config import Section


class FederationSettings(Section):
    """Deadline, quorum and what is refused; how the rounds are run, not what they compute."""

    deadline: float = Field(600.0, gt=0, le=1e6, description="most seconds that a round waits for replies")
    quorum: float = Field(0.5, gt=0, le=1, description="share of the cohort without whose replies no round counts")
    attempts: int = Field(3, ge=1, le=1000, description="times that a round without quorum is asked for")
    patience: float = Field(30.0, ge=0, le=1e6, description="seconds that a site which left may take to come back")
    norm: float = Field(
        10.0, ge=0, le=1e9, description="refuse updates longer than this many times the round's median; 0: none"
    )
