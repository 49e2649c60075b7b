"""Trials from settings to results: set up, resumed, run, recorded."""

from collections.abc import Sequence
from pathlib import Path

from moonfed.core.errors import UserError
from moonfed.data import Dataset
from moonfed.models.custom import CustomEncoder
from moonfed.storage.checkpoint import Manifest
from moonfed.storage.recorder import Recorder
from moonfed.storage.run_folder import RunFolder
from moonfed.storage.run_record import RunRecord, read_run
from moonfed.storage.tensorboard_log import TensorBoardCallback, need_tensorboard
from moonfed.training.callbacks import Callback
from moonfed.training.config import Config, identity
from moonfed.training.loop import run_rounds
from moonfed.training.registry import full_name
from moonfed.training.runner import CohortRunner
from moonfed.training.setup import set_up
from moonfed.training.trial import RunContext, Trial


def run_trials(
    configs: Sequence[tuple[Config, Path | None]],
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    labels: Sequence[str] = (),
    data: Dataset | None = None,
    custom: CustomEncoder | None = None,
) -> list[RunRecord]:
    """Run trials that share data and network, each into its own folder, as one stack where they fit."""
    context, trials = set_up([config for config, _ in configs], labels, data, custom)
    places = [out or default_folder(trial.config) for (_, out), trial in zip(configs, trials, strict=True)]
    execute(trials, context, places, resume, callbacks)
    return [read_run(place) for place in places]


def execute(
    trials: Sequence[Trial],
    context: RunContext,
    places: Sequence[Path],
    resume: bool,
    callbacks: Sequence[Callback] = (),
    runner: CohortRunner | None = None,
    fingerprint: str = "",
) -> list[Trial]:
    """Run trials from where their folders stand to their last round, committing every one."""
    if len({place.resolve() for place in places}) < len(places):
        raise UserError("two of the runs are the same; ask for each of them once")
    if any(trial.config.run.tensorboard for trial in trials):
        need_tensorboard()
    fingerprint = fingerprint or context.data.fingerprint
    folders = [
        RunFolder(place, trial.config, fingerprint, context.data) for trial, place in zip(trials, places, strict=True)
    ]
    logged = {t.spec: place for t, place in zip(trials, places, strict=True) if t.config.run.tensorboard}
    recorder = Recorder({t.spec: folder for t, folder in zip(trials, folders, strict=True)}, context)
    board = TensorBoardCallback(logged)
    observers = [recorder, *([board] if logged else []), *callbacks]
    try:
        ready = resume_from(trials, folders, resume)
        for callback in observers:
            callback.on_start(ready)
        ended = run_rounds(ready, context, observers, runner)
        for callback in observers:
            callback.on_end(ended)
    finally:
        for holder in (*folders, board):
            holder.close()
    return ended


def resume_from(trials: Sequence[Trial], folders: Sequence[RunFolder], resume: bool) -> list[Trial]:
    """Restore trials from their folders, and take the folders; whatever is refused is refused before any is changed."""
    for folder in folders:
        folder.check(resume)
    start = lowest_common([folder.checkpoint.manifests() for folder in folders])
    loaded = [folder.load(trial, at) for trial, folder, at in zip(trials, folders, start, strict=True)]
    for folder, manifest in zip(folders, start, strict=True):
        folder.begin(manifest)
    return loaded


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


def default_folder(config: Config) -> Path:
    """Name the folder of a run by what it is, so that the same settings find the same folder again."""
    settings = config.algorithm
    name = full_name(settings.name, settings.server)
    return Path("runs") / f"{config.data.dataset}-{name}-s{config.run.seed}-{identity(config)[:6]}"
