"""FedAvg (McMahan et al. 2017): plain local SGD, then the share-weighted mean of the parties' models."""

from dataclasses import dataclass

from moonfed.core.rules import LocalRule, Preset


@dataclass(frozen=True)
class FedAvgLocal(LocalRule):
    """SGD on cross-entropy and nothing else."""


PRESET = Preset("fedavg", FedAvgLocal)
