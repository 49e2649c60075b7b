"""Checkpoints: state, party memory and log, committed by renaming one small manifest into place."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, get_type_hints

from moonfed.core.errors import UserError
from moonfed.core.files import (
    append_line,
    cut,
    in_order,
    pack,
    parse_lines,
    read_json,
    read_log,
    read_tensors,
    unpack,
    write_json,
    write_tensors,
)
from moonfed.core.tree import under
from moonfed.core.types import Slots, Snapshot, State, Tensors, as_snapshot
from moonfed.core.wording import counted
from moonfed.storage.run_files import CHECKPOINT, LOG
from moonfed.training.early_stopping import Best, best_round, rounds_waited
from moonfed.training.records import RoundRecord
from moonfed.training.trial import Trial

FORMAT = 1
SERVER_STATE = "kept"  # the name on disk since format 1
RELEASED = "released"
CURRENT, BEFORE = "manifest.json", "manifest-before.json"


class Manifest(NamedTuple):
    """A committed round; the names of its files follow from the round."""

    round: int
    log_bytes: int
    log_digest: str
    identity: str
    data: str
    memory: bool  # whether parties have files
    format: int = FORMAT


class Checkpoint:
    """A folder with the last two committed rounds, and the log of all; a round writes only the files of its own cohort.

    The previous round is kept so that trials of one stack, killed between two commits, can all return to their lowest
    common round.
    """

    def __init__(self, run: Path, identity: str = "", data: str = "") -> None:
        self.folder, self.log = run / CHECKPOINT, run / LOG
        self.identity, self.data = identity, data  # of the run that commits; a reader needs neither
        self.log_bytes, self.log_digest = 0, hashlib.sha256()
        self.rounds_of: dict[int, list[int]] = {}  # the rounds for which a party's file exists, oldest first
        self.best_rounds: list[int] = []  # of the last two committed rounds, with early stopping

    def manifests(self) -> list[Manifest]:
        """List the committed rounds that can be restored, newest first."""
        found = [self._manifest(name) for name in (CURRENT, BEFORE)]
        return list({m.round: m for m in reversed(found) if m is not None}.values())[::-1]

    def commit(self, trial: Trial, record: RoundRecord) -> None:
        """Make a round permanent: its files, its line of the log, then the manifest.

        From the rename of the manifest on, a resume finds the round. What no manifest needs is deleted at the end.
        """
        old, round, state = self._manifest(CURRENT), trial.round, trial.state
        changed: dict[int, Slots] = {k: trial.memory[k] for k in record["cohort"] if k in trial.memory}
        flat = pack({"model": state.model})
        flat |= {f"sent/{k}": v for k, v in pack(state.sent).items()}
        flat |= {f"{SERVER_STATE}/{k}": v for k, v in pack(state.server_state).items()}
        flat |= {} if trial.released is None else pack({RELEASED: trial.released})
        best = trial.best
        if best is not None and best.round == round:
            write_tensors(self._best(round), pack({"model": best.model}), identity=self.identity)
        files = {self._state(round): flat} | {self._party(k, round): pack(slots) for k, slots in changed.items()}
        for path, tensors in files.items():
            write_tensors(path, tensors, identity=self.identity)
        line = json.dumps(record, allow_nan=False)
        self.log_bytes = append_line(self.log, self.log_bytes, line)
        self.log_digest.update(line.encode() + b"\n")
        log = (self.log_bytes, self.log_digest.hexdigest())
        manifest = Manifest(round, *log, self.identity, self.data, bool(trial.memory))
        if old is not None:
            write_json(self.folder / BEFORE, old._asdict())
        write_json(self.folder / CURRENT, manifest._asdict())
        self._state(round - 2).unlink(missing_ok=True)
        if best is not None:
            stale, self.best_rounds = set(self.best_rounds[:-1]), [*self.best_rounds[-1:], best.round]
            for earlier in stale - set(self.best_rounds):
                self._best(earlier).unlink(missing_ok=True)
        for party in changed:
            *stale, last, new = [0, 0, *self.rounds_of.get(party, []), round]
            for earlier in stale:
                self._party(party, earlier).unlink(missing_ok=True)
            self.rounds_of[party] = [last, new]

    def load(self, manifest: Manifest, names: Sequence[str]) -> tuple[State, dict[int, Slots], list[RoundRecord]]:
        """Read a committed round: its state, the parties' memory, and the log up to it; names orders the tensors."""
        content = read_log(self.log)[: manifest.log_bytes]
        digest, rounds = hashlib.sha256(content), content.count(b"\n")
        if (digest.hexdigest(), rounds) != (manifest.log_digest, manifest.round):
            raise UserError(
                f"{self.log} is missing or damaged: it does not hold the "
                f"{counted(manifest.round, 'round')} of its checkpoint as written; use --out for another folder"
            )
        self.log_bytes, self.log_digest = manifest.log_bytes, digest
        rows: list[RoundRecord] = parse_lines(content)
        self.rounds_of = {}
        for round, row in enumerate(rows, start=1):
            for party in row["cohort"] if manifest.memory else ():
                self.rounds_of[party] = [*self.rounds_of.get(party, []), round][-2:]
        newest = {party: self._party(party, rounds[-1]) for party, rounds in self.rounds_of.items()}
        memory = {party: in_order(unpack(_read(path, manifest)), names) for party, path in newest.items()}
        return self.load_state(manifest, names), memory, rows

    def load_best(self, manifest: Manifest, rows: Sequence[RoundRecord], names: Sequence[str]) -> Best | None:
        """Read the best model of the rounds up to a committed one; None without early stopping."""
        best = best_round(rows)
        if best is None:
            return None
        self.best_rounds = [number for number in (best_round(rows[:-1]), best) if number is not None]
        model = as_snapshot(in_order(unpack(_read(self._best(best), manifest)), names), "model")
        return Best(best, float(rows[best - 1].get("monitor_loss") or 0.0), model, rounds_waited(rows))

    def load_state(self, manifest: Manifest, names: Sequence[str] = ()) -> State:
        """Read the server's state of a committed round."""
        flat = _read(self._state(manifest.round), manifest)
        model = as_snapshot(unpack({k: v for k, v in flat.items() if k.startswith("model/")}), "model")
        parts = [in_order(unpack(under(part, flat)), names) for part in ("sent", SERVER_STATE)]
        return State(as_snapshot(in_order({"model": model}, names), "model"), *parts)

    def load_released(self, manifest: Manifest, names: Sequence[str] = ()) -> Snapshot | None:
        """Read the model that phases made of the state of a committed round; None where there is none."""
        flat = _read(self._state(manifest.round), manifest)
        slots = unpack({k: v for k, v in flat.items() if k.startswith(f"{RELEASED}/")})
        return as_snapshot(in_order(slots, names), RELEASED) if slots else None

    def rewind(self, manifest: Manifest | None) -> None:
        """Make a committed round, or the beginning, the current one and delete what came after it."""
        if manifest is None:
            for name in (CURRENT, BEFORE):
                (self.folder / name).unlink(missing_ok=True)
        else:
            write_json(self.folder / CURRENT, manifest._asdict())
        round = manifest.round if manifest else 0
        needed = {self._state(round), self._state(round - 1)}
        needed |= {self._best(best) for best in self.best_rounds}
        needed |= {self._party(party, r) for party, rounds in self.rounds_of.items() for r in rounds}
        for path in [*self.folder.glob("*.safetensors"), *self.folder.glob(".*.tmp")]:
            if path not in needed:
                path.unlink(missing_ok=True)
        cut(self.log, self.log_bytes)

    def check(self) -> None:
        """Refuse a checkpoint that other settings or other data wrote."""
        for manifest in self.manifests()[:1]:
            for what, ours, theirs in (
                ("settings", self.identity, manifest.identity),
                ("data", self.data, manifest.data),
            ):
                if ours != theirs:
                    raise UserError(
                        f"{self.folder.parent} was run with other {what} ({theirs[:8]}, now {ours[:8]}); "
                        f"use the {what} it was started with, or --out for another folder"
                    )

    def _manifest(self, name: str) -> Manifest | None:
        path = self.folder / name
        if not path.exists():
            return None
        try:
            value = read_json(path)
        except UserError as error:
            raise UserError(f"{error}; the run cannot be resumed, use --out for another folder") from None
        if value.get("format") != FORMAT:
            raise UserError(
                f"{path} has checkpoint format {value.get('format')}, this version of moonfed reads {FORMAT}; "
                "resume the run with the version that started it, or use --out for another folder"
            )
        kinds = get_type_hints(Manifest)
        if {k: type(v) for k, v in value.items()} != kinds or value["round"] < 1 or value["log_bytes"] < 1:
            raise UserError(
                f"{path} is damaged: it should hold {', '.join(kinds)} as they were written; "
                "use --out for another folder"
            )
        return Manifest(**value)

    def _state(self, round: int) -> Path:
        return self.folder / f"state-{round}.safetensors"

    def _best(self, round: int) -> Path:
        return self.folder / f"best-{round}.safetensors"

    def _party(self, party: int, round: int) -> Path:
        return self.folder / f"party-{party}-{round}.safetensors"


def _read(path: Path, manifest: Manifest) -> Tensors:
    try:
        tensors, metadata = read_tensors(path)
    except UserError as error:
        raise UserError(f"{error}; use --out for another folder") from None
    if metadata.get("identity") != manifest.identity:
        raise UserError(f"{path} is damaged: it belongs to another run; use --out for another folder")
    return tensors


def lowest_common(committed: Sequence[list[Manifest]], ended: Sequence[bool]) -> list[Manifest | None]:
    """Choose for each trial the committed round it continues from.

    Trials of one stack are killed at most one round apart: they continue from the lower round together, so that the
    stack is the one it would have been. A trial that is further ahead waits at its own last round. Trials that had
    ended before do not hold the others back: those were in no stack any more.
    """
    newest = [manifests[0].round if manifests else 0 for manifests in committed]
    low = min((round for round, over in zip(newest, ended, strict=True) if not over), default=max(newest))
    chosen: list[Manifest | None] = []
    for manifests in committed:
        at_low = next((m for m in manifests if m.round == low), None)
        begins_again = low == 0 and [m.round for m in manifests] == [1]
        chosen.append(at_low or (None if begins_again or not manifests else manifests[0]))
    return chosen
