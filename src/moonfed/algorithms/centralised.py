"""Centralised training: all rows in one place, one optimiser from the first round to the last."""

from dataclasses import dataclass

from moonfed.core.algorithm import Preset
from moonfed.core.rules import LocalRule


@dataclass(frozen=True)
class CentralisedLocal(LocalRule):
    """Plain training whose optimiser persists from round to round."""

    keeps_optimizer = True


PRESET = Preset("centralised", CentralisedLocal, pooled=True)
