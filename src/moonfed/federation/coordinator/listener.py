"""Who hears of a federation's progress, and says when it is to stop."""

from collections.abc import Callable
from dataclasses import dataclass

from moonfed.training.records import RoundRecord
from moonfed.training.trial import Trial


@dataclass(frozen=True)
class Listener:
    """A display, a log, or nobody."""

    start: Callable[[list[Trial]], None] = lambda trials: None
    after_round: Callable[[int, list[RoundRecord]], bool] = lambda round, rows: True
    say: Callable[[str], None] = lambda line: None
    stopping: Callable[[], bool] = lambda: False  # whether the user has asked for the end


NOBODY = Listener()
