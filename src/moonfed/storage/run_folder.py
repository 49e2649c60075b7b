"""A run folder: config.json, rounds.jsonl, evaluation.json, final.safetensors and checkpoint/."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from moonfed.core.errors import UserError
from moonfed.core.files import (
    append_line,
    cut,
    lock_file,
    parse_lines,
    read_json,
    read_log,
    read_tensors,
    short,
    unwritable,
    write_json,
    write_tensors,
)
from moonfed.core.tree import pack, tree_map
from moonfed.core.types import Slots, Tensors
from moonfed.storage.checkpoint import Checkpoint, Manifest
from moonfed.storage.describe_run import describe_run, differences
from moonfed.training.callbacks import Callback, Finished
from moonfed.training.evaluate import final_evaluation
from moonfed.training.records import RoundRecord
from moonfed.training.trial import RunContext, Trial

CONFIG, LOG, EVALUATION = "config.json", "rounds.jsonl", "evaluation.json"
FINAL, FAILURE, ENCODING = "final.safetensors", "failure.json", "encoding.json"
FEDERATION = "federation"  # where a federation on one machine keeps its keys, its sites and their logs


class RunFolder(Callback):
    """One trial's folder, locked by one process at a time; as a callback it commits every round.

    check and load only read: a folder that they refuse is left as it was. on_start is the first to write.
    """

    def __init__(self, path: Path, trial: Trial, context: RunContext, fingerprint: str = "") -> None:
        self.path, self.spec, self.config, self.context = path, trial.spec, trial.config, context
        self.data, self.fingerprint = context.data, fingerprint or context.data.fingerprint
        self.identity = trial.config.identity
        self.start: Manifest | None = None  # the committed round that this process continues from
        self.checkpoint = Checkpoint(path / "checkpoint")
        self.log_bytes, self.log_digest = 0, hashlib.sha256()
        self.resumes = self.finished = False  # whether the folder held the run, or a finished one, before
        self.earlier_parts: list[dict[str, Any]] = []  # versions and machine of each part before a resume
        self._lock: Any = None

    def check(self, resume: bool) -> None:
        """Refuse a place that cannot take this run, and lock one that holds it."""
        try:
            if self.path.exists() and not self.path.is_dir():
                raise UserError(f"{self.path} is a file, a run needs a folder; use --out for another place")
            if (self.path / CONFIG).exists():
                self._check_same_run(resume)
                self._acquire()
                self._check_same_run(resume)
            elif self.path.exists() and self._has_other_files():
                raise UserError(f"{self.path} is not empty and holds no run; use --out for a new or empty folder")
        except OSError as error:
            raise UserError(f"cannot read {self.path}: {short(error)}; use --out for another place") from None

    def load(self, trial: Trial, manifest: Manifest | None) -> Trial:
        """Return the trial as it was at a committed round, or as it is before its first."""
        self.start = manifest
        if manifest is None:
            return trial
        log = read_log(self.path / LOG)
        content = log[: manifest.log_bytes]
        digest, rounds = hashlib.sha256(content), content.count(b"\n")
        if (digest.hexdigest(), rounds) != (manifest.log_digest, manifest.round):
            raise UserError(
                f"{self.path / LOG} is missing or damaged: it does not hold the {manifest.round} rounds of its "
                "checkpoint as they were written; use --out for another folder"
            )
        names = [*trial.state.model.weights, *trial.state.model.buffers]
        state, memory = self.checkpoint.load(manifest, [record["cohort"] for record in parse_lines(content)], names)
        device = trial.spec.device
        self.log_bytes, self.log_digest = manifest.log_bytes, digest
        done = manifest.round >= trial.config.train.rounds and log == content
        self.finished = done and has_final_weights(self.path, manifest.round)
        return replace(
            trial,
            state=tree_map(lambda t: t.to(device), state),
            memory={party: tree_map(lambda t: t.to(device), slots) for party, slots in memory.items()},
            round=manifest.round,
        )

    def on_start(self, trials: Sequence[Trial]) -> None:
        """Take the folder and discard what was written after a committed round; a finished run is left as it is."""
        if self.finished:
            return
        description = describe_run(self.config, self.fingerprint, self.data) | {"before": self.earlier_parts}
        if self._lock is None:
            self._acquire()
            if (self.path / CONFIG).exists():
                raise UserError(f"{self.path} was just taken by another process; use --out for another folder")
        if self.data.encoding is not None:
            write_json(self.path / ENCODING, self.data.encoding)
        write_json(self.path / CONFIG, description)
        if self.resumes:
            self.checkpoint.rewind(self.start)
            cut(self.path / LOG, self.log_bytes)
            (self.path / FAILURE).unlink(missing_ok=True)

    def on_round(self, finished: Finished) -> None:
        """Make this trial's round permanent: its files, its line of the log, then the manifest."""
        for trial, record in finished:
            if trial.spec is self.spec:
                changed: dict[int, Slots] = {k: trial.memory[k] for k in record["cohort"] if k in trial.memory}
                self.checkpoint.write(trial.round, trial.state, changed, self.identity)
                line = json.dumps(record, allow_nan=False)
                self.log_bytes = append_line(self.path / LOG, self.log_bytes, line)
                self.log_digest.update(line.encode() + b"\n")
                log = (self.log_bytes, self.log_digest.hexdigest())
                manifest = Manifest(trial.round, *log, self.identity, self.fingerprint, bool(trial.memory))
                self.checkpoint.commit(manifest, list(changed))

    def on_end(self, trials: Sequence[Trial]) -> None:
        """Write the evaluation of this trial's final model, then its weights; or why it failed."""
        trial = next(trial for trial in trials if trial.spec is self.spec)
        if trial.failure is not None:
            write_json(self.path / FAILURE, {"failure": trial.failure, "rounds": trial.round})
        elif trial.done and not self.finished:
            write_json(self.path / EVALUATION, final_evaluation(trial, self.context))
            write_tensors(self.path / FINAL, final_tensors(trial), identity=self.identity, rounds=str(trial.round))

    def close(self) -> None:
        """Release the folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _check_same_run(self, resume: bool) -> None:
        recorded = read_json(self.path / CONFIG)
        if not isinstance(recorded.get("config"), dict) or not isinstance(recorded.get("before"), list):
            raise UserError(f"{self.path / CONFIG} is damaged; use --out for another folder")
        if not resume:
            what = recorded.get("name", "a run")
            raise UserError(
                f"{self.path} already holds {what}; continue it with --resume, or use --out for another folder"
            )
        if recorded.get("identity") != self.identity:
            raise UserError(
                f"{self.path} holds a run with other settings{differences(recorded['config'], self.config)}; "
                "use the same settings, or --out for another folder"
            )
        self.checkpoint.check(self.identity, self.fingerprint)
        self.resumes = True
        self.earlier_parts = [*recorded["before"], {k: recorded.get(k) for k in ("versions", "machine")}]
        for manifest in self.checkpoint.manifests()[:1]:
            if manifest.round > self.config.train.rounds:
                raise UserError(
                    f"{self.path} has done {manifest.round} rounds, more than the "
                    f"{self.config.train.rounds} asked for; use --rounds {manifest.round} or more"
                )

    def _has_other_files(self) -> bool:
        """Whether the folder holds more than a run leaves that is killed before its config is written."""
        shell = {"checkpoint", "checkpoint/lock", f".{CONFIG}.tmp", ENCODING, f".{ENCODING}.tmp"}
        return any(
            path.relative_to(self.path).as_posix() not in shell
            for path in self.path.rglob("*")
            if path.relative_to(self.path).parts[0] != FEDERATION
        )

    def _acquire(self) -> None:
        try:
            self._lock = lock_file(self.checkpoint.folder / "lock")
        except BlockingIOError:
            raise UserError(
                f"{self.path} is in use by another process; wait for it, or use --out for another folder"
            ) from None
        except OSError as error:
            raise unwritable(self.path, error) from None


def final_tensors(trial: Trial) -> Tensors:
    """The final weights by their names in the network; per party, if each has its own model."""
    frozen = trial.spec.frozen
    if not trial.algorithm.personal:
        return trial.state.model.weights | trial.state.model.buffers | frozen
    models: Slots = {f"party{party}": model for party, model in trial.personal_models().items()}
    flat = {k.replace("/weights/", "/").replace("/buffers/", "/"): v for k, v in pack(models).items()}
    return flat | {f"{name}/{k}": v for name in models for k, v in frozen.items()}


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
