"""Trials from settings to results: set up, resumed, run, recorded."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from moonfed.core.errors import UserError
from moonfed.storage.checkpoint import Manifest
from moonfed.storage.run_folder import RunFolder, read_rows
from moonfed.storage.tensorboard_log import Scalars, need_tensorboard
from moonfed.training.config import Config, identity
from moonfed.training.loop import RoundRecord, RoundResult, run_rounds
from moonfed.training.registry import full_name
from moonfed.training.runner import CohortRunner
from moonfed.training.scoring import final_evaluation
from moonfed.training.trial import RunContext, Trial, open_context, resolve, set_up


@dataclass(frozen=True)
class Outcome:
    """What became of a trial."""

    config: Config
    folder: Path
    rows: list[RoundRecord]
    failure: str | None

    @property
    def finished(self) -> bool:
        """Whether every round was run."""
        return self.failure is None and len(self.rows) == self.config.train.rounds


def run_trials(
    configs: Sequence[tuple[Config, Path | None]],
    resume: bool,
    on_start: Callable[[list[Trial]], None] = lambda trials: None,
    after_round: Callable[[int, list[RoundRecord]], bool] = lambda round, rows: True,
    say: Callable[[str], None] = lambda line: None,
    bench: RunContext | None = None,
    noted: Callable[[Trial, RoundRecord], None] = lambda trial, row: None,
) -> list[Outcome]:
    """Run trials that share data and network, each into its own folder, as one stack where they fit."""
    if any(config.run.tensorboard for config, _ in configs):
        need_tensorboard()
    bench = bench or open_context(configs[0][0], len(configs), say)
    fingerprint = bench.data.fingerprint
    resolved = [(resolve(config, bench.data, bench.own), out) for config, out in configs]
    trials = [set_up(config, bench) for config, _ in resolved]
    folders = [RunFolder(out or default_folder(config), config, fingerprint, bench.data) for config, out in resolved]
    if len({folder.path.resolve() for folder in folders}) < len(folders):
        raise UserError("two of the runs are the same; ask for each of them once")
    return carry_out(trials, folders, bench, resume, on_start, after_round, noted=noted)


def carry_out(
    trials: list[Trial],
    folders: list[RunFolder],
    bench: RunContext,
    resume: bool,
    on_start: Callable[[list[Trial]], None],
    after_round: Callable[[int, list[RoundRecord]], bool],
    parties: CohortRunner | None = None,
    noted: Callable[[Trial, RoundRecord], None] = lambda trial, row: None,
) -> list[Outcome]:
    """Take trials from where their folders say they stand to their last round, committing every one."""
    by_trial = {id(trial): folder for trial, folder in zip(trials, folders, strict=True)}
    boards: dict[int, Scalars] = {}
    try:
        # All that can be refused is refused before the first word is written to any of the folders.
        for folder in folders:
            folder.look(resume)
        start = lowest_common([folder.checkpoint.manifests() for folder in folders])
        for trial, folder, manifest in zip(trials, folders, start, strict=True):
            folder.load(trial, manifest)
        for trial, folder, manifest in zip(trials, folders, start, strict=True):
            folder.begin(manifest)
            if trial.config.run.tensorboard and not folder.finished:
                boards[id(trial)] = Scalars(folder.path, trial.round + 1)

        def commit(trial: Trial, settled: RoundResult) -> None:
            by_trial[id(trial)].commit(trial, settled)
            if (board := boards.get(id(trial))) is not None:
                board.write(settled.row)
            noted(trial, settled.row)

        on_start(trials)
        run_rounds(trials, bench, commit, after_round, parties)
        for trial, folder in zip(trials, folders, strict=True):
            folder.finish(trial, lambda trial=trial: final_evaluation(trial, bench))
    finally:
        for holder in (*folders, *boards.values()):
            holder.close()
    return [
        Outcome(trial.config, folder.path, read_rows(folder.path), trial.failure)
        for trial, folder in zip(trials, folders, strict=True)
    ]


def lowest_common(committed: Sequence[list[Manifest]]) -> list[Manifest | None]:
    """Choose for each trial the committed round it goes on from.

    Trials of one stack are killed at most one round apart: they go on from the lower one together, so that the stack
    is the one it would have been. A trial that is further ahead waits at its own last round.
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
