"""Callbacks that write a run to disk: every round committed to its folder, the final model at the end."""

from collections.abc import Mapping, Sequence

from moonfed.storage.run_folder import RunFolder
from moonfed.training.callbacks import Callback, Finished
from moonfed.training.evaluate import final_evaluation
from moonfed.training.trial import RunContext, Trial, TrialSpec


class Recorder(Callback):
    """Commits every finished round of some trials to their run folders."""

    def __init__(self, folders: Mapping[TrialSpec, RunFolder], context: RunContext) -> None:
        self.folders, self.context = folders, context

    def on_round(self, finished: Finished) -> None:
        """Commit the round of each trial."""
        for trial, record in finished:
            self.folders[trial.spec].commit(trial, record)

    def on_end(self, trials: Sequence[Trial]) -> None:
        """Write each finished trial's evaluation and weights, or why it failed."""
        for trial in trials:
            folder = self.folders[trial.spec]
            if trial.failure is not None:
                folder.fail(trial)
            elif trial.done and not folder.finished:
                folder.finish(trial, final_evaluation(trial, self.context))
