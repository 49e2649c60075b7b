"""What may listen to a run, and stop it."""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

RoundRecord: TypeAlias = dict[str, Any]
"""A round of a trial: method, seed, round, accuracy, test_loss, losses by part, seconds, bytes_up, bytes_down, ..."""

PATIENCE = 2.0  # seconds without a word


@dataclass(frozen=True)
class Start:
    """What is about to be run."""

    trials: tuple[tuple[str, int], ...]  # method and seed of each
    parties: tuple[int, ...]  # rows of each party, in the first trial
    rounds: int
    done: int  # rounds that were done before, where a run is resumed


class Callback:
    """Listens to a run; a subclass says what it does."""

    def on_start(self, start: Start) -> None:
        """Hear what is about to be run."""

    def on_round(self, row: RoundRecord) -> bool | None:
        """Hear of a trial's finished round; True ends the run after the round."""


CallbackLike: TypeAlias = Callback | Callable[[RoundRecord], bool | None]
"""A Callback, or a function that is called with each row."""


class Progress(Callback):
    """Says on stderr how a run goes on, once it has taken two seconds."""

    def __init__(self) -> None:
        self.rounds, self.last = 0, time.monotonic()

    def on_start(self, start: Start) -> None:
        """Note how long the run will be."""
        self.rounds, self.last = start.rounds, time.monotonic()

    def on_round(self, row: RoundRecord) -> bool | None:
        """Say how the round went, unless something was said just before."""
        if time.monotonic() - self.last > PATIENCE:
            self.last = time.monotonic()
            found = "" if row["accuracy"] is None else f", accuracy {row['accuracy']:.1%}"
            who = f"{row['method']}, seed {row['seed']}"
            print(f"{who}: round {row['round']} of {self.rounds}{found}", file=sys.stderr)


class Listeners:
    """All that listen to one run."""

    def __init__(self, callbacks: Sequence[CallbackLike]) -> None:
        self.callbacks = callbacks
        self.stopping = False

    def start(self, start: Start) -> None:
        """Tell them what is about to be run."""
        for callback in self.callbacks:
            if isinstance(callback, Callback):
                callback.on_start(start)

    def round(self, row: RoundRecord) -> None:
        """Tell them of a round; each hears it, whatever another wants."""
        for callback in self.callbacks:
            asked = callback.on_round(row) if isinstance(callback, Callback) else callback(row)
            self.stopping |= asked is True
