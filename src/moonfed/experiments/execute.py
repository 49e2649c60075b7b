"""Runs trials in their folders: resumed, run, recorded."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from moonfed.core.errors import UserError
from moonfed.storage.checkpoint import lowest_common
from moonfed.storage.run_folder import RunFolder, check_place
from moonfed.storage.run_record import RunRecord
from moonfed.storage.tensorboard_log import TensorBoardCallback, need_tensorboard
from moonfed.training.callbacks import Callback
from moonfed.training.config import Config
from moonfed.training.loop import run_rounds
from moonfed.training.registry import full_name
from moonfed.training.run_warnings import warn_about
from moonfed.training.runner import CohortRunner
from moonfed.training.trial import RunContext, Trial


def execute(
    context: RunContext,
    trials: Sequence[Trial],
    out: Sequence[Path | None],
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    runner: CohortRunner | None = None,
    fingerprint: str = "",
) -> list[tuple[Trial, RunRecord]]:
    """Run trials that were set up together, each in its folder, from where the folder stands to the last round.

    Rounds are committed as --checkpoint-every says. Without a folder a trial gets one in runs/, named after its
    settings. Returned are the trials as they end, with their records.
    """
    places = [place or default_folder(trial.config) for place, trial in zip(out, trials, strict=True)]
    for place in places:
        check_place(place)
    if len({place.resolve() for place in places}) < len(places):
        raise UserError("two of the runs are the same; ask for each of them once")
    if any(trial.config.run.tensorboard for trial in trials):
        need_tensorboard()
    folders = [RunFolder(place, trial, context, fingerprint) for trial, place in zip(trials, places, strict=True)]
    logged = {folder.spec: folder.path for folder in folders if folder.config.run.tensorboard}
    boards = [TensorBoardCallback(logged)] if logged else []
    observers: list[Callback] = [*folders, *boards, *callbacks]
    with ExitStack() as opened:
        for folder in folders:
            opened.enter_context(folder)
        for board in boards:
            opened.enter_context(board)
        for folder in folders:  # whatever is refused is refused before any folder is changed
            folder.check(resume)
        waiting = [not folder.holds_back for folder in folders]
        kept = [folder.has_result for folder in folders]
        start = lowest_common([folder.checkpoint.manifests() for folder in folders], waiting, kept)
        share = 1 / len(folders)
        ready = [folder.load(trial, at, share) for trial, folder, at in zip(trials, folders, start, strict=True)]
        for callback in observers:
            callback.on_start(ready)
        ended = run_rounds(ready, context, observers, runner)
        for callback in observers:
            callback.on_end(ended)
    new = [(trial, folder.rows) for trial, folder in zip(ended, folders, strict=True) if not folder.finished]
    warn_about(new)  # others were warned about when they finished
    return [(trial, folder.record) for trial, folder in zip(ended, folders, strict=True)]


def default_folder(config: Config) -> Path:
    """Name the folder of a run by what it is, so that the same settings find the same folder again."""
    settings = config.algorithm
    name = full_name(settings.name, settings.server)
    return Path("runs") / f"{config.data.dataset}-{name}-s{config.run.seed}-{config.identity[:6]}"
