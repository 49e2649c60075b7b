"""Runs the trials of a plan hold-out by hold-out: trials share a stack where they share their rows."""

import logging
from collections.abc import Sequence
from os.path import isfile
from pathlib import Path

from moonfed.experiments.compare import PlannedTrial
from moonfed.experiments.execute import execute
from moonfed.storage.checkpoint import CURRENT
from moonfed.storage.run_files import CHECKPOINT, CONFIG
from moonfed.storage.run_folder import RunFolder
from moonfed.storage.run_record import RunRecord
from moonfed.training.callbacks import Callback
from moonfed.training.setup import load_data, set_up
from moonfed.training.trial import RunContext, Trial

logger = logging.getLogger(__name__)


def execute_plan(
    plan: Sequence[PlannedTrial], resume: bool = False, callbacks: Sequence[Callback] = ()
) -> list[tuple[str, RunRecord]]:
    """Run the trials of a plan, those of a hold-out together, and return their names and records in its order.

    If a run is stopped early, the hold-outs after it are left for the next command.
    """
    groups: dict[int, list[PlannedTrial]] = {}
    for trial in plan:
        groups.setdefault(trial.config.data.holdout_seed, []).append(trial)
    records: dict[Path, RunRecord] = {}
    if len(groups) > 1 and not resume:
        for group in groups.values():
            _refuse_taken(group)  # before the first hold-out is trained
    for number, (seed, group) in enumerate(groups.items(), start=1):
        context, trials = _set_up(group)
        if len(groups) > 1:
            logger.info("hold-out %d of %d, seed %d", number, len(groups), seed)
        ended = execute(context, trials, [trial.folder for trial in group], resume, callbacks)
        records |= {trial.folder: record for trial, (_, record) in zip(group, ended, strict=True)}
        if not all(record.finished or record.failure for _, record in ended):
            break
    return [(trial.name, records[trial.folder]) for trial in plan if trial.folder in records]


def has_saved_round(plan: Sequence[PlannedTrial]) -> bool:
    """Whether a trial of a plan has a round to resume."""
    return any(isfile(trial.folder / CHECKPOINT / CURRENT) for trial in plan)


def _refuse_taken(group: Sequence[PlannedTrial]) -> None:
    """Refuse folders that hold a run, as the run itself would be refused."""
    if any(isfile(trial.folder / CONFIG) for trial in group):
        context, trials = _set_up(group)
        for planned, trial in zip(group, trials, strict=True):
            with RunFolder(planned.folder, trial, context) as folder:
                folder.check(resume=False)


def _set_up(group: Sequence[PlannedTrial]) -> tuple[RunContext, list[Trial]]:
    """Set the trials of a hold-out up; data with test rows of its own is refused where hold-outs were asked for."""
    first = group[0]
    data = load_data(first.config.data, first.config.run.device, first.needs_holdout)
    return set_up([trial.config for trial in group], [trial.name for trial in group], data)
