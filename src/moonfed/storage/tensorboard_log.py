"""Optional TensorBoard logging beside rounds.jsonl."""

import importlib.util
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from moonfed.core.errors import UserError
from moonfed.core.files import unwritable
from moonfed.training.callbacks import Callback, Finished
from moonfed.training.records import RoundRecord
from moonfed.training.trial import Trial, TrialSpec


def need_tensorboard() -> None:
    """Refuse to log with a package that is not installed."""
    if importlib.util.find_spec("tensorboard") is None:
        raise UserError('--tensorboard needs the package tensorboard; pip install "moonfed[tensorboard]"')


class TensorBoardCallback(Callback):
    """Logs the rounds of some trials as TensorBoard scalars, below their run folders."""

    def __init__(self, folders: Mapping[TrialSpec, Path]) -> None:
        self.folders = folders
        self.writers: dict[TrialSpec, Any] = {}

    def on_start(self, trials: Sequence[Trial]) -> None:
        """Open an event file for each trial that has rounds left."""
        from torch.utils.tensorboard import SummaryWriter

        for trial in trials:
            if trial.spec in self.folders and not trial.done:
                path = self.folders[trial.spec] / "tensorboard"
                try:
                    self.writers[trial.spec] = SummaryWriter(str(path), purge_step=trial.round + 1)
                except OSError as error:
                    raise unwritable(path, error) from None

    def on_round(self, finished: Finished) -> None:
        """Log the round of each trial."""
        for trial, record in finished:
            if trial.spec in self.writers:
                self._write(trial.spec, record)

    def _write(self, spec: TrialSpec, record: RoundRecord) -> None:
        scalars = {"accuracy": record["accuracy"], "test_loss": record["test_loss"], "seconds": record["seconds"]}
        more = ("monitor_loss", "worst_accuracy", "consensus_accuracy", "consensus_distance")
        scalars |= {name: record.get(name) for name in more}
        scalars |= {f"losses/{name}": value for name, value in record["losses"].items()}
        try:
            for name, value in scalars.items():
                if value is not None:
                    self.writers[spec].add_scalar(name, value, record["round"])
            self.writers[spec].flush()
        except OSError as error:
            raise unwritable(self.folders[spec] / "tensorboard", error) from None

    def __enter__(self) -> "TensorBoardCallback":
        return self

    def __exit__(self, *exc: object) -> None:
        """Close the event files; every round was flushed, so a full disk loses none."""
        for writer in self.writers.values():
            with suppress(OSError):
                writer.close()
