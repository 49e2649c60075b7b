"""A run folder: config.json, rounds.jsonl, evaluation.json, final.safetensors and checkpoint/."""

import hashlib
import json
import os
import platform
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from moonfed.core.errors import UserError
from moonfed.core.files import append_line, cut, read_json, read_tensors, short, unwritable, write_json, write_tensors
from moonfed.core.tree import pack, tree_map
from moonfed.core.types import Tensors
from moonfed.data.dataset import Dataset
from moonfed.storage.checkpoint import Checkpoint, Manifest
from moonfed.training.config import FREE, Config, identity
from moonfed.training.loop import RoundRecord, RoundResult
from moonfed.training.trial import Trial

CONFIG, LOG, EVALUATION = "config.json", "rounds.jsonl", "evaluation.json"
FINAL, FAILURE, ENCODING = "final.safetensors", "failure.json", "encoding.json"
FEDERATION = "federation"  # where a federation on one machine keeps its keys, its sites and what they said


class RunFolder:
    """One trial's folder, held by one process at a time.

    look and load only read: what they refuse is left as it was. begin is the first to write.
    """

    def __init__(self, path: Path, config: Config, data: str, own: Dataset | None = None) -> None:
        self.path, self.config, self.data, self.own = path, config, data, own
        self.identity = identity(config)
        self.checkpoint = Checkpoint(path / "checkpoint")
        self.log_bytes, self.log_digest = 0, hashlib.sha256()
        self.finished = False  # before this process came
        self.before: list[dict[str, Any]] = []  # on what the run was carried out before it was resumed
        self._lock: Any = None

    def look(self, resume: bool) -> None:
        """Refuse a place that cannot take this run, and keep other processes away from one that holds it."""
        try:
            if self.path.exists() and not self.path.is_dir():
                raise UserError(f"{self.path} is a file, a run needs a folder; use --out for another place")
            if (self.path / CONFIG).exists():
                self._same_run(resume)
                self._hold()
                self._same_run(resume)
            elif self.path.exists() and self._foreign():
                raise UserError(f"{self.path} is not empty and holds no run; use --out for a new or empty folder")
        except OSError as error:
            raise UserError(f"cannot read {self.path}: {short(error)}; use --out for another place") from None

    def load(self, trial: Trial, manifest: Manifest | None) -> None:
        """Put a trial back to a committed round, or leave it at its beginning."""
        if manifest is None:
            return
        log = _log(self.path)
        content = log[: manifest.log_bytes]
        digest, rows = hashlib.sha256(content), content.count(b"\n")
        if (digest.hexdigest(), rows) != (manifest.log_digest, manifest.round):
            raise UserError(
                f"{self.path / LOG} is missing or damaged: it does not hold the {manifest.round} rounds of its "
                "checkpoint as they were written; use --out for another folder"
            )
        state, memory = self.checkpoint.load(manifest, [row["cohort"] for row in _rows(content)])
        trial.state = tree_map(lambda t: t.to(trial.device), state)
        trial.memory = {party: tree_map(lambda t: t.to(trial.device), slots) for party, slots in memory.items()}
        trial.round, self.log_bytes, self.log_digest = manifest.round, manifest.log_bytes, digest
        done = trial.round >= trial.config.train.rounds and log == content
        self.finished = done and final_stands(self.path, trial.round)

    def begin(self, manifest: Manifest | None) -> None:
        """Take the folder and forget what was written after a committed round; a finished run is left as it is."""
        if self.finished:
            return
        if self._lock is None:
            self._hold()
            if (self.path / CONFIG).exists():
                raise UserError(f"{self.path} has just been taken by another process; use --out for another folder")
        if self.own is not None and self.own.encoding is not None:
            write_json(self.path / ENCODING, self.own.encoding)
        write_json(self.path / CONFIG, describe(self.config, self.data, self.own) | {"before": self.before})
        self.checkpoint.rewind(manifest)
        cut(self.path / LOG, self.log_bytes)
        (self.path / FAILURE).unlink(missing_ok=True)

    def commit(self, trial: Trial, settled: RoundResult) -> None:
        """Make a finished round count: its files, its row of the log, then the manifest."""
        self.checkpoint.write(trial.round, trial.state, settled.changed, self.identity)
        line = json.dumps(settled.row, allow_nan=False)
        self.log_bytes = append_line(self.path / LOG, self.log_bytes, line)
        self.log_digest.update(line.encode() + b"\n")
        log = (self.log_bytes, self.log_digest.hexdigest())
        manifest = Manifest(trial.round, *log, self.identity, self.data, bool(trial.memory))
        self.checkpoint.seal(manifest, list(settled.changed))

    def finish(self, trial: Trial, evaluation: Callable[[], dict[str, Any]]) -> None:
        """Write what can be said of the final model and then its weights, or why there are none."""
        if trial.failure is not None:
            write_json(self.path / FAILURE, {"failure": trial.failure, "rounds": trial.round})
        elif trial.round >= trial.config.train.rounds and not self.finished:
            write_json(self.path / EVALUATION, evaluation())
            write_tensors(self.path / FINAL, final_tensors(trial), identity=self.identity, rounds=str(trial.round))

    def close(self) -> None:
        """Let the folder go."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _same_run(self, resume: bool) -> None:
        there = read_json(self.path / CONFIG)
        if not isinstance(there.get("config"), dict) or not isinstance(there.get("before"), list):
            raise UserError(f"{self.path / CONFIG} is damaged; use --out for another folder")
        if not resume:
            what = there.get("name", "a run")
            raise UserError(
                f"{self.path} already holds {what}; continue it with --resume, or use --out for another folder"
            )
        if there.get("identity") != self.identity:
            raise UserError(
                f"{self.path} holds a run with other settings{_differences(there['config'], self.config)}; "
                "use the same settings, or --out for another folder"
            )
        self.checkpoint.check(self.identity, self.data)
        self.before = [*there["before"], {k: there.get(k) for k in ("versions", "machine")}]
        for manifest in self.checkpoint.manifests()[:1]:
            if manifest.round > self.config.train.rounds:
                raise UserError(
                    f"{self.path} has done {manifest.round} rounds, more than the "
                    f"{self.config.train.rounds} asked for; use --rounds {manifest.round} or more"
                )

    def _foreign(self) -> bool:
        """Whether the folder holds more than what a run leaves that is killed before its config is written."""
        shell = {"checkpoint", "checkpoint/lock", f".{CONFIG}.tmp", ENCODING, f".{ENCODING}.tmp"}
        return any(
            path.relative_to(self.path).as_posix() not in shell
            for path in self.path.rglob("*")
            if path.relative_to(self.path).parts[0] != FEDERATION
        )

    def _hold(self) -> None:
        """Keep other processes out; the operating system lets go when this one dies, however it dies."""
        try:
            self.checkpoint.folder.mkdir(parents=True, exist_ok=True)
            self._lock = (self.checkpoint.folder / "lock").open("w")
        except OSError as error:
            raise unwritable(self.path, error) from None
        try:
            import fcntl
        except ImportError:
            return
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(
                f"{self.path} is in use by another process; wait for it, or use --out for another folder"
            ) from None


def final_tensors(trial: Trial) -> Tensors:
    """The final weights under their names in the network; of each party, if each has its own model."""
    own = trial.algorithm.local.own
    if own is None:
        return trial.state.model.weights | trial.state.model.buffers | trial.frozen
    models = {f"party{party}": slots[own] for party, slots in sorted(trial.memory.items())}
    found = {k.replace("/weights/", "/").replace("/buffers/", "/"): v for k, v in pack(models).items()}
    return found | {f"{name}/{k}": v for name in models for k, v in trial.frozen.items()}


def final_stands(path: Path, rounds: int) -> bool:
    """Whether a run's final weights are there, whole, and those of its last round."""
    try:
        return read_tensors(path / FINAL)[1].get("rounds") == str(rounds)
    except UserError:
        return False


def read_rows(path: Path) -> list[RoundRecord]:
    """Read the rows of a run's log; a last line that was cut off does not count."""
    try:
        return _rows(_log(path))
    except ValueError as error:
        raise UserError(f"{path / LOG} cannot be read: {short(error)}") from None


def _log(path: Path) -> bytes:
    try:
        return (path / LOG).read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise UserError(f"{path / LOG} cannot be read: {short(error)}") from None


def _rows(content: bytes) -> list[RoundRecord]:
    return [json.loads(line) for line in content.split(b"\n")[:-1]]


def describe(config: Config, data: str, own: Dataset | None = None) -> dict[str, Any]:
    """Say what a run is: settings, versions, machine."""
    settings = config.algorithm
    name = settings.name if settings.server is None else f"{settings.name}+{settings.server}"
    return {
        "name": f"{name} on {config.data.dataset}, seed {config.run.seed}",
        "identity": identity(config),
        "config": config.model_dump(mode="json"),
        "data": data,
        **({} if own is None else {"inputs": _of_inputs(own)}),
        **({} if own is None or own.source is None else _of_own(config, own)),
        "versions": {"python": platform.python_version()} | {k: _version(k) for k in ("moonfed", "torch", "numpy")},
        "machine": {
            "system": platform.platform(),
            "cpu": platform.machine(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        },
    }


def _of_inputs(data: Dataset) -> dict[str, Any]:
    """Say what a model must know of the rows it was trained on, to be built and asked without them."""
    shape, kind = list(data.inputs.shape[1:]), str(data.inputs.dtype).removeprefix("torch.")
    scale = {"mean": list(data.mean), "std": list(data.std)}
    return {"shape": shape, "kind": kind, "words": data.words, "classes": data.classes} | scale


def _of_own(config: Config, data: Dataset) -> dict[str, Any]:
    """Say what a user's own data is called: its classes, its parties, where it came from, what was left out."""
    parties = {"parties": list(data.party_names)} if config.data.partition == "natural" else {}
    return {"source": data.source, "classes": list(data.class_names)} | parties


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def _differences(there: dict[str, Any], config: Config) -> str:
    """List the settings in which two configs differ and may not."""
    here = config.model_dump(mode="json")
    found: list[str] = []
    for section, values in here.items():
        theirs = there.get(section)
        old: dict[str, Any] = theirs if isinstance(theirs, dict) else {}
        for name in [*values, *(k for k in old if k not in values)]:
            if old.get(name) != values.get(name) and name not in FREE.get(section, ()):
                hint = f" (--precision {old.get(name)} goes on with it)" if name == "precision" else ""
                found.append(f"{section}.{name} was {old.get(name)}, now {values.get(name)}{hint}")
    return ": " + "; ".join(found[:3]) if found else ""
