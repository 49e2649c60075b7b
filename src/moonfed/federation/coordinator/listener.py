"""The observer of a federation's run."""

from collections.abc import Callable
from dataclasses import dataclass

from moonfed.training.loop import RoundRecord
from moonfed.training.trial import Trial


@dataclass(frozen=True)
class Listener:
    """Is told of start and rounds, and says whether the user wants to stop."""

    start: Callable[[list[Trial]], None] = lambda trials: None
    after_round: Callable[[int, list[RoundRecord]], bool] = lambda round, rows: True
    stopping: Callable[[], bool] = lambda: False


NO_LISTENER = Listener()
