"""A run folder: config.json, rounds.jsonl, evaluation.json, final.safetensors and checkpoint/."""

import errno
from collections.abc import Sequence
from dataclasses import replace
from os.path import isfile
from pathlib import Path
from typing import IO, Any, cast

from moonfed.core.errors import UserError
from moonfed.core.files import lock_folder, pack, read_json, short, write_json, write_tensors
from moonfed.core.regular_file import regular_size
from moonfed.core.tree import tree_map
from moonfed.core.types import Slots, Tensors
from moonfed.storage.checkpoint import Checkpoint, Manifest
from moonfed.storage.party_store import cache_bytes
from moonfed.storage.run_description import describe_run
from moonfed.storage.run_files import CHECKPOINT, CONFIG, ENCODING, EVALUATION, FAILURE, FEDERATION, FINAL, LOG
from moonfed.storage.run_record import RunRecord, has_final_weights, read_rounds
from moonfed.training.callbacks import Callback, Finished
from moonfed.training.config import NEWER, Config
from moonfed.training.early_stopping import has_stopped
from moonfed.training.final_evaluation import evaluation_of_sites, final_evaluation
from moonfed.training.records import RoundRecord
from moonfed.training.trial import RunContext, Trial

LOCK = f"{CHECKPOINT}/lock"


class RunFolder(Callback):
    """One trial's folder, locked by one process at a time; as a callback it commits every round.

    check and load only read: a folder that they refuse is left as it was. on_start is the first to write.
    """

    def __init__(self, path: Path, trial: Trial, context: RunContext, fingerprint: str = "") -> None:
        self.path, self.spec, self.config, self.context = path, trial.spec, trial.config, context
        self.data, self.fingerprint = context.data, fingerprint or context.data.fingerprint
        self.identity = trial.config.identity
        self.start: Manifest | None = None  # the committed round that this process continues from
        self.checkpoint = Checkpoint(path, self.identity, self.fingerprint)
        self.resumes = self.finished = False  # whether the folder held the run, or a finished one, before
        self.description: dict[str, Any] = {}  # what config.json holds
        self.rows: list[RoundRecord] = []  # the log
        self.failure: str | None = None
        self._lock: IO[str] | None = None

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(self, *exc: object) -> None:
        """Release the folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def check(self, resume: bool) -> None:
        """Refuse a place that cannot take this run, and lock one that holds it."""
        try:
            if self.path.exists() and not self.path.is_dir():
                raise UserError(f"{self.path} is a file, a run needs a folder; use --out for another place")
            if (self.path / CONFIG).exists():
                regular_size(self.path / CONFIG)
                self._check_same_run(resume)
                self._lock = lock_folder(self.path, LOCK)
                self._check_same_run(resume)
            elif self.path.exists() and self._has_other_files():
                raise UserError(f"{self.path} is not empty and holds no run; use --out for a new or empty folder")
        except OSError as error:
            raise UserError(f"cannot read {self.path}: {short(error)}; use --out for another place") from None

    def load(self, trial: Trial, manifest: Manifest | None, share: float = 1.0) -> Trial:
        """Return the trial as it was at a committed round, or as it is before its first.

        share is this trial's part of the memory that a cache of what parties remember may take.
        """
        self.start, device = manifest, trial.spec.device
        names = [*trial.state.model.weights, *trial.state.model.buffers]

        def place(slots: Slots) -> Slots:
            return tree_map(lambda t: t.to(device), slots)

        limit = cache_bytes(device, share)
        if manifest is None:
            return replace(trial, memory=self.checkpoint.memory(None, names, place, limit))
        state, self.rows = self.checkpoint.load(manifest, names)
        whole = self.checkpoint.log.stat().st_size == manifest.log_bytes
        self.finished = self.ended(self.rows) and whole and has_final_weights(self.path, manifest.round)
        released = self.checkpoint.load_released(manifest, names) if trial.algorithm.phases else None
        best = self.checkpoint.load_best(manifest, self.rows, names)
        if best is not None:
            best = replace(best, model=tree_map(lambda t: t.to(device), best.model))
        return replace(
            trial,
            state=tree_map(lambda t: t.to(device), state),
            memory=self.checkpoint.memory(manifest, names, place, limit),
            round=manifest.round,
            best=best,
            released=None if released is None else tree_map(lambda t: t.to(device), released),
        )

    @property
    def holds_back(self) -> bool:
        """Whether other trials of a stack return to this one's last committed round: it was in a stack with them."""
        return self.resumes and not self.has_ended and not (self.path / FAILURE).exists()

    @property
    def has_result(self) -> bool:
        """Whether the final weights of the last committed round are there."""
        return any(has_final_weights(self.path, m.round) for m in self.checkpoint.manifests()[:1])

    @property
    def has_ended(self) -> bool:
        """Whether the last committed round was the trial's last."""
        for manifest in self.checkpoint.manifests()[:1]:
            train = self.config.train  # only early stopping needs the rounds' records, which may be damaged
            done = manifest.round >= train.rounds
            return done or (train.patience > 0 and self.ended(read_rounds(self.path)[: manifest.round]))
        return False

    def ended(self, rows: Sequence[RoundRecord]) -> bool:
        """Whether rounds are all that were asked for, or all until early stopping."""
        train = self.config.train
        return len(rows) >= train.rounds or has_stopped(rows, train.patience)

    def on_start(self, trials: Sequence[Trial]) -> None:
        """Take the folder and discard what was written after a committed round; a finished run is left as it is."""
        if self.finished:
            (self.path / FAILURE).unlink(missing_ok=True)  # of a longer run that failed
            return
        before = self.description.get("before", [])
        if self.resumes:
            before = [*before, {k: self.description.get(k) for k in ("versions", "machine")}]
        self.description = describe_run(self.config, self.fingerprint, self.data) | {"before": before}
        if self._lock is None:
            self._lock = lock_folder(self.path, LOCK)
            if (self.path / CONFIG).exists():
                raise UserError(f"{self.path} was just taken by another process; use --out for another folder")
        if self.data.encoding is not None:
            write_json(self.path / ENCODING, self.data.encoding)
        write_json(self.path / CONFIG, self.description)
        if self.resumes:
            self.checkpoint.rewind(self.start)
            (self.path / FAILURE).unlink(missing_ok=True)

    def on_round(self, finished: Finished) -> None:
        """Log this trial's round, and commit it if it is due."""
        for trial, record in finished:
            if trial.spec is self.spec:
                if trial.done or trial.round % self.config.run.checkpoint_every == 0:
                    self.checkpoint.commit(trial, record)
                else:
                    self.checkpoint.append(record)
                self.rows.append(cast(RoundRecord, dict(record)))  # a later callback may change its own

    def on_failure(self, trial: Trial) -> None:
        """Save the last good state of this trial, and why it failed."""
        if trial.spec is self.spec:
            self._commit_rest(trial)
            write_json(self.path / FAILURE, {"failure": trial.failure, "rounds": trial.round})

    def _commit_rest(self, trial: Trial) -> None:
        """Commit rounds that were not due."""
        if self.checkpoint.trained:
            self.checkpoint.commit(trial)

    def on_end(self, trials: Sequence[Trial]) -> None:
        """Write the evaluation of this trial's final model, then its weights."""
        trial = next(trial for trial in trials if trial.spec is self.spec)
        self.failure = trial.failure
        self._commit_rest(trial)  # a callback has stopped the run
        if trial.failure is None and trial.done and not self.finished:
            tensors = final_tensors(trial)
            if trial.models_elsewhere:
                evaluation = evaluation_of_sites(self.rows[-1])
            else:
                evaluation = trial.evaluation or final_evaluation(trial, self.context)
            write_json(self.path / EVALUATION, evaluation)
            facts = {"identity": self.identity, "rounds": str(trial.round)}
            if "temperature" in evaluation:
                facts["temperature"] = repr(evaluation["temperature"])
            write_tensors(self.path / FINAL, tensors, **facts)

    @property
    def record(self) -> RunRecord:
        """The run as the folder holds it, with the settings that it was resolved to."""
        return RunRecord(self.path, self.config, self.rows, self.failure, self.description)

    def _check_same_run(self, resume: bool) -> None:
        recorded = read_json(self.path / CONFIG)
        if not isinstance(recorded.get("config"), dict) or not isinstance(recorded.get("before"), list):
            raise UserError(f"{self.path / CONFIG} is damaged; use --out for another folder")
        if recorded.get("identity") != self.identity:
            raise UserError(
                f"{self.path} holds a run with other settings{differences(recorded['config'], self.config)}; "
                "use the same settings, or --out for another folder"
            )
        if not resume:
            what = recorded.get("name", "a run")
            raise UserError(
                f"{self.path} already holds {what}; continue it with --resume, or use --out for another folder"
            )
        self.checkpoint.check()
        self.resumes, self.description = True, recorded
        for manifest in self.checkpoint.manifests()[:1]:
            if manifest.round > self.config.train.rounds:
                raise UserError(
                    f"{self.path} has done {manifest.round} rounds, more than the "
                    f"{self.config.train.rounds} asked for; use --rounds {manifest.round} or more"
                )

    def _has_other_files(self) -> bool:
        """Whether the folder holds more than a run leaves that is killed before its config is written."""
        shell = {CHECKPOINT, LOCK, f".{CONFIG}.tmp", ENCODING, f".{ENCODING}.tmp"}
        return any(
            path.relative_to(self.path).as_posix() not in shell
            for path in self.path.rglob("*")
            if path.relative_to(self.path).parts[0] != FEDERATION
        )


def check_place(path: Path) -> None:
    """Refuse a path that cannot become a folder: a name that is not UTF-8, a link to nowhere, a place in a run."""
    needs = "--out needs a new or empty folder"
    try:
        str(path).encode()
        path.stat()
    except ValueError:  # a NUL character, or bytes that are not UTF-8
        raise UserError(f"{needs} with a name in UTF-8, got {str(path)!a}") from None
    except OSError as error:
        broken = error.errno == errno.ENOENT and any(p.is_symlink() and not p.exists() for p in (path, *path.parents))
        if broken or error.errno == errno.ELOOP:
            raise UserError(f"{needs}, {path} is or passes a link that leads to itself or nowhere") from None
    if not isfile(path / CONFIG):  # a run that is there may be resumed, wherever it is
        for parent in path.parents:
            if isfile(parent / CONFIG) and isfile(parent / LOG):  # unlike Path.is_file, also of names that are too long
                raise UserError(f"{parent} holds a run, so {path} cannot go into it; use --out for another folder")


def final_tensors(trial: Trial) -> Tensors:
    """The final weights by their names in the network; below the party where each has its own model here.

    A global model that is complete beside the personal ones, as in Ditto, is below "global". Where the personal models
    are at other machines, what is shared is all there is.
    """
    frozen, complete = trial.spec.frozen, trial.algorithm.local.companion is not None
    if trial.models_elsewhere and not complete:
        return trial.shared_model.weights | trial.shared_model.buffers
    if not trial.algorithm.personal:
        return trial.final_model.weights | trial.final_model.buffers | frozen
    models: Slots = {"global": trial.state.model} if complete else {}
    models |= {f"party{party}": model for party, model in trial.personal_models().items()}
    flat = {k.replace("/weights/", "/").replace("/buffers/", "/"): v for k, v in pack(models).items()}
    return flat | {f"{name}/{k}": v for name in models for k, v in frozen.items()}


def differences(recorded: dict[str, Any], config: Config) -> str:
    """List the settings in which a recorded run and a config differ and may not."""
    asked = config.model_dump(mode="json")
    found: list[str] = []
    for section, values in asked.items():
        there = recorded.get(section)
        old = cast("dict[str, Any]", there) if isinstance(there, dict) else {}
        for name in [*values, *(k for k in old if k not in values)]:
            unchanged = NEWER.get(section, {})
            before = old.get(name, unchanged.get(name))
            if before != values.get(name) and name not in config.free.get(section, ()):
                hint = _hint(name, before, config)
                found.append(f"{section}.{name} was {before}, now {values.get(name)}{hint}")
    return ": " + "; ".join(found[:5]) if found else ""


def _hint(name: str, before: Any, config: Config) -> str:
    """Say what to do about a difference, where that is known."""
    if name in ("rounds", "evaluate_every") and config.train.patience:
        return " (--patience depends on which rounds are evaluated)"
    if name == "rounds":
        return f" (--lr-schedule {config.train.lr_schedule} depends on the number of rounds)"
    if name == "precision" and before == "bf16":
        return " (removed since; resume it with the version that started it)"
    return f" (--{name} {before} resumes it)" if name in ("precision", "slices") else ""
