"""A run folder: config.json, rounds.jsonl, final.safetensors and checkpoint/."""

import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from moonfed.core.errors import UserError
from moonfed.core.tree import pack, tree_map
from moonfed.core.types import Tensors
from moonfed.run.checkpoint import Checkpoint, Manifest
from moonfed.run.config import Config, identity
from moonfed.run.disk import append_line, read_json, write_json, write_tensors
from moonfed.run.loop import Row, Settled
from moonfed.run.trial import Trial

CONFIG, LOG, FINAL, FAILURE = "config.json", "rounds.jsonl", "final.safetensors", "failure.json"


class RunFolder:
    """One trial's folder, held by one process at a time."""

    def __init__(self, path: Path, config: Config, data: str) -> None:
        self.path, self.config, self.data = path, config, data
        self.identity = identity(config)
        self.checkpoint = Checkpoint(path / "checkpoint")
        self.log_bytes = 0
        self.before: list[dict[str, Any]] = []  # on what the run was carried out before it was resumed
        self._lock: Any = None

    def open(self, resume: bool) -> None:
        """Take the folder: a new one, or the same run's if it is to be resumed."""
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"{self.path} is a file, a run needs a folder; use --out for another place")
        if (self.path / CONFIG).exists():
            self._same_run(resume)
        elif self.path.exists() and any(self.path.iterdir()):
            raise UserError(f"{self.path} is not empty and holds no run; use --out for a new or empty folder")
        try:
            self.checkpoint.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot make {self.path}: {error.strerror}; use --out for another place") from None
        self._hold()
        write_json(self.path / CONFIG, describe(self.config, self.data) | {"before": self.before})

    def restore(self, trial: Trial, manifest: Manifest | None) -> None:
        """Put a trial back to a committed round, or to its beginning, and forget what was written after it."""
        if manifest is not None:
            rows = read_rows(self.path, manifest.log_bytes)
            if len(rows) != manifest.round:
                raise UserError(f"{self.path / LOG} has {len(rows)} rounds where its checkpoint has {manifest.round}")
            state, memory = self.checkpoint.load(manifest, [row["cohort"] for row in rows])
            trial.state = tree_map(lambda t: t.to(trial.device), state)
            trial.memory = {party: tree_map(lambda t: t.to(trial.device), slots) for party, slots in memory.items()}
            trial.round, self.log_bytes = manifest.round, manifest.log_bytes
        self.checkpoint.rewind(manifest)

    def commit(self, trial: Trial, settled: Settled) -> None:
        """Make a finished round count: its files, its row of the log, then the manifest."""
        self.checkpoint.write(trial.round, trial.state, settled.changed)
        line = json.dumps(settled.row, allow_nan=False)
        self.log_bytes = append_line(self.path / LOG, self.log_bytes, line)
        manifest = Manifest(trial.round, self.log_bytes, self.identity, self.data, bool(trial.memory))
        self.checkpoint.seal(manifest, list(settled.changed))

    def finish(self, trial: Trial) -> None:
        """Write the final weights, or why there are none."""
        if trial.failure is not None:
            write_json(self.path / FAILURE, {"failure": trial.failure, "rounds": trial.round})
        elif trial.round >= trial.config.train.rounds:
            (self.path / FAILURE).unlink(missing_ok=True)
            write_tensors(self.path / FINAL, final_tensors(trial), identity=self.identity, rounds=str(trial.round))

    def close(self) -> None:
        """Let the folder go."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _same_run(self, resume: bool) -> None:
        there = read_json(self.path / CONFIG)
        if not resume:
            what = there.get("name", "a run")
            raise UserError(
                f"{self.path} already holds {what}; continue it with --resume, or use --out for another folder"
            )
        if there.get("identity") != self.identity:
            raise UserError(
                f"{self.path} holds a run with other settings: {_differences(there.get('config', {}), self.config)}"
            )
        self.checkpoint.check(self.identity, self.data)
        self.before = [*there.get("before", []), {k: there.get(k) for k in ("versions", "machine")}]
        for manifest in self.checkpoint.manifests()[:1]:
            if manifest.round > self.config.train.rounds:
                raise UserError(
                    f"{self.path} has done {manifest.round} rounds, more than the "
                    f"{self.config.train.rounds} asked for; use --rounds {manifest.round} or more"
                )

    def _hold(self) -> None:
        """Keep other processes out; the operating system lets go when this one dies, however it dies."""
        try:
            import fcntl
        except ImportError:
            return
        self._lock = (self.checkpoint.folder / "lock").open("w")
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
        return trial.state.model.weights | trial.state.model.buffers
    models = {f"party{party}": slots[own] for party, slots in sorted(trial.memory.items())}
    return {k.replace("/weights/", "/").replace("/buffers/", "/"): v for k, v in pack(models).items()}


def read_rows(path: Path, length: int | None = None) -> list[Row]:
    """Read the rows of a run's log, or of its first bytes; a last line that was cut off does not count."""
    try:
        content = (path / LOG).read_bytes()[:length]
        return [json.loads(line) for line in content.split(b"\n")[:-1]]
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise UserError(f"{path / LOG} cannot be read: {error}") from None


def describe(config: Config, data: str) -> dict[str, Any]:
    """Say what a run is: settings, versions, machine."""
    settings = config.algorithm
    name = settings.name if settings.server is None else f"{settings.name}+{settings.server}"
    return {
        "name": f"{name} on {config.data.dataset}, seed {config.run.seed}",
        "identity": identity(config),
        "config": config.model_dump(mode="json"),
        "data": data,
        "versions": {"python": platform.python_version()} | {k: _version(k) for k in ("moonfed", "torch", "numpy")},
        "machine": {
            "system": platform.platform(),
            "cpu": platform.machine(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        },
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def _differences(there: dict[str, Any], config: Config) -> str:
    """List the settings in which two configs differ."""
    here = config.model_dump(mode="json")
    found = [
        f"{section}.{name} was {there.get(section, {}).get(name)}, now {value}"
        for section, values in here.items()
        for name, value in values.items()
        if there.get(section, {}).get(name) != value and (section, name) != ("train", "rounds")
    ]
    return "; ".join(found[:3]) + "; use the same settings, or --out for another folder"
