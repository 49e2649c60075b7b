"""The seeds of a trial, and how they are written."""

from typing import NamedTuple

from moonfed.training.config import Config


class TrialSeeds(NamedTuple):
    """The seeds of a trial: of the split, of the training and of the hold-out; trials that agree in all are paired."""

    split: int
    training: int
    holdout: int = 0

    @property
    def text(self) -> str:
        """The seeds in words; the usual hold-out, 0, is not named."""
        text = f"seed {self.training}" + ("" if self.split == self.training else f" on split {self.split}")
        return f"{text}, hold-out {self.holdout}" if self.holdout else text


def seeds_of(config: Config) -> TrialSeeds:
    """Return the seeds of a config's trial."""
    data, seed = config.data, config.run.seed
    return TrialSeeds(seed if data.partition_seed is None else data.partition_seed, seed, data.holdout_seed)
