"""Callbacks that write a run to disk: every round committed to its folder, the final model at the end."""

from collections.abc import Mapping, Sequence

from moonfed.storage.checkpoint import Manifest
from moonfed.storage.run_folder import RunFolder
from moonfed.training.callbacks import Callback, Finished
from moonfed.training.evaluate import final_evaluation
from moonfed.training.trial import RunContext, Trial, TrialSpec


class Recorder(Callback):
    """Commits every finished round of some trials to their run folders."""

    def __init__(self, folders: Mapping[TrialSpec, RunFolder], context: RunContext) -> None:
        self.folders, self.context = folders, context

    def load(self, trials: Sequence[Trial], resume: bool) -> list[Trial]:
        """Restore trials from their folders; whatever is refused is refused before any folder is changed."""
        folders = [self.folders[trial.spec] for trial in trials]
        for folder in folders:
            folder.check(resume)
        self.start = lowest_common([folder.checkpoint.manifests() for folder in folders])
        return [folder.load(trial, at) for trial, folder, at in zip(trials, folders, self.start, strict=True)]

    def on_start(self, trials: Sequence[Trial]) -> None:
        """Take the folders."""
        for trial, manifest in zip(trials, self.start, strict=True):
            self.folders[trial.spec].begin(manifest)

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

    def close(self) -> None:
        """Release the folders."""
        for folder in self.folders.values():
            folder.close()


def lowest_common(committed: Sequence[list[Manifest]]) -> list[Manifest | None]:
    """Choose for each trial the committed round it continues from.

    Trials of one stack are killed at most one round apart: they continue from the lower round together, so that the
    stack is the one it would have been. A trial that is further ahead waits at its own last round.
    """
    low = min(manifests[0].round if manifests else 0 for manifests in committed)
    chosen: list[Manifest | None] = []
    for manifests in committed:
        at_low = next((m for m in manifests if m.round == low), None)
        begins_again = low == 0 and [m.round for m in manifests] == [1]
        chosen.append(at_low or (None if begins_again or not manifests else manifests[0]))
    return chosen
