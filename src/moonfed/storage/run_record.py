"""A run at rest: its folder, read without changing anything."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from moonfed.core.errors import UserError
from moonfed.core.files import parse_lines, read_json, read_log, read_tensors, short
from moonfed.core.wording import counted
from moonfed.storage.checkpoint import Checkpoint
from moonfed.storage.run_files import CHECKPOINT, CONFIG, EVALUATION, FAILURE, FINAL, LOG
from moonfed.training.accuracy import accuracy, final_accuracy
from moonfed.training.config import Config, make_config
from moonfed.training.early_stopping import has_stopped
from moonfed.training.evaluation_rows import accuracy_on
from moonfed.training.records import RoundRecord
from moonfed.training.registry import ALGORITHMS, full_name, preset_of
from moonfed.training.trial_seeds import TrialSeeds, seeds_of

logger = logging.getLogger(__name__)

STOPPED = "stopped early"  # the state of a run that early stopping has ended
PARTY_KEYS = {"training_rows", "test_rows", "accuracy"}  # what an evaluation says of every named party


@dataclass(frozen=True)
class RunRecord:
    """What one trial was asked to do, on what, and how far it came."""

    folder: Path
    config: Config
    rows: list[RoundRecord]
    failure: str | None
    description: dict[str, Any]  # what config.json holds

    @property
    def machine(self) -> dict[str, Any]:
        """The machine that the trial was last carried out on."""
        return _as_dict(self.description.get("machine"))

    @property
    def versions(self) -> dict[str, Any]:
        """Versions of the packages that it was last carried out with."""
        return _as_dict(self.description.get("versions"))

    @property
    def before(self) -> list[dict[str, Any]]:
        """Machine and versions of each part before it was resumed."""
        parts = self.description.get("before")
        return [_as_dict(part) for part in cast("list[Any]", parts)] if isinstance(parts, list) else []

    @property
    def data(self) -> str | None:
        """Fingerprint of the data set."""
        found = self.description.get("data")
        return found if isinstance(found, str) else None

    @property
    def algorithm(self) -> str:
        """The pair of rules: moon, or moon+fedavgm."""
        return full_name(self.config.algorithm.name, self.config.algorithm.server)

    @property
    def is_graph(self) -> bool:
        """Whether parties average with their neighbours in a graph, without a server."""
        return preset_of(self.config.algorithm.name, self.config.algorithm.server).sends_own_models

    @property
    def topology(self) -> str | None:
        """The graph of the parties; None with a server."""
        return str(self.config.algorithm.options["topology"]) if self.is_graph else None

    @property
    def seeds(self) -> TrialSeeds:
        """The seeds of the split, the training and the hold-out."""
        return seeds_of(self.config)

    @property
    def finished(self) -> bool:
        """Whether every round that was asked for is there, or early stopping has ended the trial."""
        return self.failure is None and (self.stopped or len(self.rows) >= self.config.train.rounds)

    @property
    def stopped(self) -> bool:
        """Whether early stopping has ended the trial."""
        return has_stopped(self.rows, self.config.train.patience)

    @cached_property
    def evaluation(self) -> dict[str, Any]:
        """What evaluation.json says of the final model; empty if the trial has none yet."""
        try:
            return _current_form(read_json(self.folder / EVALUATION)) if self.finished else {}
        except UserError:
            return {}

    @property
    def on_gpu(self) -> bool:
        """Whether the trial was last carried out on a GPU."""
        return self.machine.get("gpu") is not None and self.config.run.device != "cpu"

    @property
    def state(self) -> str:
        """How the trial ended, in a few words."""
        if self.failure is not None:
            return f"failed after round {len(self.rows)}: {self.failure}"
        rounds = self.config.train.rounds
        return "finished" if self.finished else f"unfinished, {len(self.rows)} of {counted(rounds, 'round')}"


class UnknownAlgorithm(UserError):
    """A run of an algorithm that this process does not know: one that a user gave to fit, in another process."""


def read_run(folder: Path) -> RunRecord:
    """Read one run folder; rows that no checkpoint has committed do not count."""
    there = read_json(folder / CONFIG)
    settings = there.get("config")
    if not isinstance(settings, dict):
        raise UserError(f"{folder / CONFIG} holds no settings of a run; omit this folder")
    name = str(_as_dict(cast("dict[str, Any]", settings).get("algorithm")).get("name")).partition("+")[0]
    if name not in ALGORITHMS:
        raise UnknownAlgorithm(f"{folder} is of {name}, an algorithm that is not registered here; omit this folder")
    try:
        config = recorded_config(cast("dict[str, Any]", settings))
    except UserError as error:
        raise UserError(f"{folder / CONFIG} cannot be read by this version of moonfed: {error}") from None
    rows = read_rounds(folder)
    committed = Checkpoint(folder).manifests()
    if committed:
        rows = rows[: committed[0].round]
    check_rows(folder, rows)
    failure = read_json(folder / FAILURE).get("failure") if (folder / FAILURE).exists() else None
    return RunRecord(folder, config, rows, None if failure is None else str(failure), there)


def recorded_config(settings: dict[str, Any]) -> Config:
    """Read recorded settings; bf16, a precision of version 0.1, is kept as it was recorded."""
    run = _as_dict(settings.get("run"))
    if run.get("precision") != "bf16":
        return make_config(settings)
    config = make_config(settings | {"run": run | {"precision": "fp16"}})
    return config.model_copy(update={"run": config.run.model_copy(update={"precision": "bf16"})})


def _as_dict(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _current_form(evaluation: dict[str, Any]) -> dict[str, Any]:
    """Bring an evaluation of an earlier commit into today's form: it had a list `parties` beside `by_party`.

    A party without what every party has is left out: the file is damaged.
    """
    by_party = {name: _as_dict(figures) for name, figures in _as_dict(evaluation.get("by_party")).items()}
    lines: Any = evaluation.get("parties")
    if isinstance(lines, list):
        for line in map(_as_dict, cast("list[Any]", lines)):
            name = str(line.get("party"))
            now = {"training_rows": line.get("rows"), "test_rows": line.get("test_rows")}
            now["accuracy"] = line.get("accuracy")
            by_party[name] = now | {key: value for key, value in by_party.get(name, {}).items() if key != "rows"}
    whole = {name: figures for name, figures in by_party.items() if set(figures) >= PARTY_KEYS}
    others = {key: value for key, value in evaluation.items() if key not in ("parties", "by_party")}
    return others | ({"by_party": whole} if whole else {})


def read_runs(folders: Sequence[Path]) -> list[RunRecord]:
    """Read every run in some folders and below them, each once, in the order of the folders and of the names."""
    found: dict[Path, RunRecord] = {}
    for folder in folders:
        if not folder.is_dir():
            what = "is a file" if folder.exists() else "is not there"
            raise UserError(f"{folder} {what}; a report needs run folders, or folders with runs below them")
        places = run_folders(folder)
        if not places:
            raise UserError(
                f"{folder} holds no run, and neither does a folder below it; moonfed runs lists what there is"
            )
        for place in places:
            if place.resolve() in found:
                continue
            try:
                found[place.resolve()] = read_run(place)
            except UnknownAlgorithm as error:
                if len(places) == 1:
                    raise
                logger.warning("left out: %s", error)
    records = list(found.values())
    if not any(record.rows for record in records):
        raise UserError(f"no run in {', '.join(map(str, folders))} has finished a round yet; there is nothing to show")
    return records


def list_runs(folder: Path) -> list[dict[str, Any]]:
    """List the runs in a folder and below it with their progress, accuracy and state; damaged ones included."""
    if not folder.is_dir():
        raise UserError(f"no folder {folder}; runs go to runs/ unless --out names another folder")
    return [_describe(path) for path in run_folders(folder)]


def run_folders(folder: Path) -> list[Path]:
    """The run folders in a folder and below it, by name."""
    return sorted(path.parent for path in folder.rglob(CONFIG) if path.parent.name != CHECKPOINT)


def _describe(folder: Path) -> dict[str, Any]:
    try:
        record = read_run(folder)
        state = f"failed: {record.failure}" if record.failure is not None else "can be resumed"
        if record.finished and has_final_weights(folder, len(record.rows)):
            state = STOPPED if record.stopped else "finished"
    except UnknownAlgorithm:
        return {"folder": str(folder), "state": "of an algorithm that is not registered here"}
    except UserError as error:
        return {"folder": str(folder), "state": f"damaged: {error}"}
    return {
        "folder": str(folder),
        "algorithm": record.algorithm,
        "dataset": record.config.data.dataset,
        "seed": record.config.run.seed,
        "rounds": len(record.rows),
        "rounds_requested": record.config.train.rounds,
        "patience": record.config.train.patience,
        "accuracy": accuracy(record.rows),
        "final_accuracy": final_accuracy(record.rows),
        "accuracy_on": accuracy_on(record.config),
        "state": state,
    }


def check_rows(folder: Path, rows: Sequence[Any]) -> None:
    """Refuse a log whose lines lack what every round writes."""
    for number, row in enumerate(rows, start=1):
        if not (isinstance(row, dict) and _is_complete(cast("dict[str, Any]", row), number)):
            raise UserError(f"{folder / LOG} is damaged: line {number} is no record of round {number}")


def _is_complete(row: dict[str, Any], number: int) -> bool:
    losses = row.get("losses")
    if row.get("round") != number or not isinstance(losses, dict) or not {"accuracy", "test_loss"} <= set(row):
        return False
    if row.get("best_round", 1) not in range(1, number + 1):
        return False
    values: list[Any] = [row.get(name) for name in ("seconds", "bytes_up", "bytes_down")]
    values += [*_as_dict(losses).values(), row.get("trials_in_stack", 1) or None]
    values += [row[name] for name in ("accuracy", "test_loss") if row[name] is not None]
    return all(isinstance(value, int | float) for value in values)


def has_final_weights(path: Path, rounds: int) -> bool:
    """Whether a run's final weights are there, whole, and those of its last round."""
    try:
        return read_tensors(path / FINAL)[1].get("rounds") == str(rounds)
    except UserError:
        return False


def read_rounds(path: Path) -> list[RoundRecord]:
    """Read the log of a run; a last line that was cut off is ignored."""
    try:
        return parse_lines(read_log(path / LOG))
    except ValueError as error:
        raise UserError(f"{path / LOG} cannot be read: {short(error)}") from None
