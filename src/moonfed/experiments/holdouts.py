"""Runs the trials of a plan hold-out by hold-out: trials share a stack where they share their rows."""

import logging
from collections.abc import Sequence
from pathlib import Path

from moonfed.core.errors import UserError
from moonfed.experiments.compare import PlannedTrial
from moonfed.experiments.execute import execute
from moonfed.storage.run_files import CONFIG
from moonfed.storage.run_record import RunRecord
from moonfed.training.callbacks import Callback
from moonfed.training.setup import set_up

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
        _refuse_taken(plan)  # before the first hold-out is trained
    for number, (seed, group) in enumerate(groups.items(), start=1):
        if len(groups) > 1:
            logger.info("hold-out %d of %d, seed %d", number, len(groups), seed)
        context, trials = set_up([trial.config for trial in group], [trial.name for trial in group])
        if len(groups) > 1 and not context.data.held_out:
            raise UserError(f"{context.data.name} comes with test rows, so none are held out; omit --holdout-seeds")
        ended = execute(context, trials, [trial.folder for trial in group], resume, callbacks)
        records |= {trial.folder: record for trial, (_, record) in zip(group, ended, strict=True)}
        if not all(record.finished or record.failure for _, record in ended):
            break
    return [(trial.name, records[trial.folder]) for trial in plan if trial.folder in records]


def _refuse_taken(plan: Sequence[PlannedTrial]) -> None:
    """Refuse a folder that holds a run, as a run in it would be refused."""
    for trial in plan:
        if (trial.folder / CONFIG).exists():
            raise UserError(
                f"{trial.folder} already holds a run; continue it with --resume, or use --out for another folder"
            )
