"""One protocol for everything that observes a run: checkpoints, progress, TensorBoard, the user's own callbacks."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from moonfed.training.records import RoundRecord

if TYPE_CHECKING:  # torch comes with it, and the command line's help pages do without
    from moonfed.training.trial import Trial

Finished: TypeAlias = "Sequence[tuple[Trial, RoundRecord]]"
"""The trials that finished a round, as they are after it, each with its record."""


class Callback:
    """Observes a run; a subclass overrides what it is interested in."""

    def on_start(self, trials: "Sequence[Trial]") -> None:
        """Called before the first round, with the trials where they start or resume."""

    def on_round(self, finished: Finished) -> bool | None:
        """Called after every round; returning True stops the run after it."""

    def on_failure(self, trial: "Trial") -> None:
        """Called when a trial has failed, with its last good state."""

    def on_end(self, trials: "Sequence[Trial]") -> None:
        """Called after the last round, also when the run was stopped early."""


class FunctionCallback(Callback):
    """Calls a function with the record of each finished round, to which method and seed are added."""

    def __init__(self, function: Callable[[RoundRecord], bool | None]) -> None:
        self.function = function

    def on_round(self, finished: Finished) -> bool | None:
        """Call the function once per trial; each trial is reported, whatever it returns."""
        answers = [self.function(with_method(trial, record)) for trial, record in finished]
        return any(answer is True for answer in answers)


def with_method(trial: "Trial", record: RoundRecord) -> RoundRecord:
    """Add a trial's method and seed to a record."""
    return {"method": trial.spec.label, "seed": trial.config.run.seed, **record}
