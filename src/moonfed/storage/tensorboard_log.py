"""Optional TensorBoard logging beside rounds.jsonl."""

import importlib.util
from contextlib import suppress
from pathlib import Path
from typing import Any

from moonfed.core.errors import UserError
from moonfed.core.files import unwritable
from moonfed.training.loop import RoundRecord


def need_tensorboard() -> None:
    """Refuse to log to a package that is not there."""
    if importlib.util.find_spec("tensorboard") is None:
        raise UserError('--tensorboard needs the package tensorboard; pip install "moonfed[tensorboard]"')


class Scalars:
    """Writes a run's rows as TensorBoard scalars."""

    def __init__(self, folder: Path, first_round: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.path = folder / "tensorboard"
        try:
            self.writer: Any = SummaryWriter(str(self.path), purge_step=first_round)
        except OSError as error:
            raise unwritable(self.path, error) from None

    def write(self, row: RoundRecord) -> None:
        """Log one round."""
        scalars = {k: row[k] for k in ("accuracy", "test_loss", "seconds") if row[k] is not None}
        try:
            for name, value in (scalars | {f"losses/{k}": v for k, v in row["losses"].items()}).items():
                self.writer.add_scalar(name, value, row["round"])
            self.writer.flush()
        except OSError as error:
            raise unwritable(self.path, error) from None

    def close(self) -> None:
        """Close the event file; every round was flushed to it, so a disk that is full by now loses none."""
        with suppress(OSError):
            self.writer.close()
