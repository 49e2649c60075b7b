"""Checkpoints: state, party memory and log, committed by renaming one small manifest into place."""

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, get_type_hints

from moonfed.core.errors import UserError
from moonfed.core.files import (
    append_line,
    cut,
    flush_file,
    in_order,
    pack,
    parse_lines,
    read_json,
    read_log,
    read_tensors,
    tensor_bytes,
    unpack,
    write_bytes,
    write_json,
    write_tensors,
)
from moonfed.core.tree import under
from moonfed.core.types import Slots, Snapshot, State, Tensors, as_snapshot
from moonfed.core.wording import counted
from moonfed.storage.party_store import PartyStore, SavedMemory
from moonfed.storage.run_files import CHECKPOINT, LOG
from moonfed.training.early_stopping import Best, best_round, rounds_waited
from moonfed.training.records import RoundRecord
from moonfed.training.trial import Trial

FORMAT = 1
SERVER_STATE = "kept"  # the name on disk since format 1
RELEASED = "released"
MAX_BYTES_READ_AHEAD = 1 << 28  # of what parties remember, when a run is resumed
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
    """A folder with the last two committed rounds, and the log of all; a commit writes only files of recent cohorts.

    The previous commit is kept so that trials of one stack, killed between two commits, can all return to their lowest
    common round. A party's file bears the round in which the party trained.
    """

    def __init__(self, run: Path, identity: str = "", data: str = "") -> None:
        self.folder, self.log = run / CHECKPOINT, run / LOG
        self.identity, self.data = identity, data  # of the run that commits; a reader needs neither
        self.log_bytes, self.log_digest = 0, hashlib.sha256()
        self.committed: list[int] = []  # the last two committed rounds, oldest first
        self.trained: dict[int, int] = {}  # the parties that trained since, each with its last round
        self.rounds_of: dict[int, list[int]] = {}  # the rounds for which a party's file exists, oldest first
        self.best_rounds: list[int] = []  # of the last two committed rounds, with early stopping

    def manifests(self) -> list[Manifest]:
        """List the committed rounds that can be restored, newest first."""
        found = [self._manifest(name) for name in (CURRENT, BEFORE)]
        return list({m.round: m for m in reversed(found) if m is not None}.values())[::-1]

    def append(self, record: RoundRecord, flush: bool = False) -> None:
        """Add a round to the log; it counts once it, or a later one, is committed, and until then need not last."""
        self.trained |= dict.fromkeys(record["cohort"], record["round"])
        line = json.dumps(record, allow_nan=False)
        self.log_bytes = append_line(self.log, self.log_bytes, line, flush)
        self.log_digest.update(line.encode() + b"\n")

    def commit(self, trial: Trial, record: RoundRecord | None = None) -> None:
        """Make a trial's rounds permanent: its files, the last line of the log unless it is there, then the manifest.

        From the rename of the manifest on, a resume finds the round. What no manifest needs is deleted at the end.
        """
        old, round, state, best = self._manifest(CURRENT), trial.round, trial.state, trial.best
        if record is not None:
            self.trained |= dict.fromkeys(record["cohort"], round)
        changed = {party: last for party, last in self.trained.items() if party in trial.memory}
        flat = pack({"model": state.model})
        flat |= {f"sent/{k}": v for k, v in pack(state.sent).items()}
        flat |= {f"{SERVER_STATE}/{k}": v for k, v in pack(state.server_state).items()}
        flat |= {} if trial.released is None else pack({RELEASED: trial.released})
        if best is not None and best.round not in self.best_rounds:
            write_tensors(self._best(best.round), pack({"model": best.model}), identity=self.identity)
        for party, last in changed.items():  # all in the folder of the state, which is written with its name
            path, facts = self._party(party, last), {"identity": self.identity}
            write_bytes(path, tensor_bytes(path.name, pack(trial.memory[party]), facts), sync_name=False)
        write_tensors(self._state(round), flat, identity=self.identity)
        if record is None:
            flush_file(self.log)
        else:
            self.append(record, flush=True)
        log = (self.log_bytes, self.log_digest.hexdigest())
        manifest = Manifest(round, *log, self.identity, self.data, bool(trial.memory))
        if old is not None:
            write_json(self.folder / BEFORE, old._asdict())
        write_json(self.folder / CURRENT, manifest._asdict())
        for earlier in self.committed[:-1]:
            self._state(earlier).unlink(missing_ok=True)
        self.committed = [*self.committed[-1:], round]
        if best is not None:
            stale, self.best_rounds = set(self.best_rounds[:-1]), [*self.best_rounds[-1:], best.round]
            for earlier in stale - set(self.best_rounds):
                self._best(earlier).unlink(missing_ok=True)
        for party, last in changed.items():
            for earlier in self.rounds_of.get(party, [])[:-1]:
                self._party(party, earlier).unlink(missing_ok=True)
            self.rounds_of[party] = [*self.rounds_of.get(party, [])[-1:], last]
        if isinstance(trial.memory, PartyStore):
            trial.memory.committed(changed)
        self.trained = {}

    def load(self, manifest: Manifest, names: Sequence[str]) -> tuple[State, list[RoundRecord]]:
        """Read a committed round: its state, and the log up to it; names orders the tensors."""
        content = read_log(self.log)[: manifest.log_bytes]
        digest, rounds = hashlib.sha256(content), content.count(b"\n")
        if (digest.hexdigest(), rounds) != (manifest.log_digest, manifest.round):
            raise UserError(
                f"{self.log} is missing or damaged: it does not hold the "
                f"{counted(manifest.round, 'round')} of its checkpoint as written; use --out for another folder"
            )
        self.log_bytes, self.log_digest = manifest.log_bytes, digest
        rows: list[RoundRecord] = parse_lines(content)
        self.committed = [m.round for m in reversed(self.manifests()) if m.round <= manifest.round]
        self.trained, self.rounds_of = {}, {}
        there = {path.name for path in self.folder.glob("party-*.safetensors")}
        for row in reversed(rows) if manifest.memory else ():
            for party in row["cohort"]:
                own = self.rounds_of.setdefault(party, [])  # newest first: of the last commit, and the one before it
                if not own or (len(own) == 1 and self._party(party, row["round"]).name in there):
                    own.append(row["round"])
        for own in self.rounds_of.values():
            own.reverse()
        return self.load_state(manifest, names), rows

    def memory(
        self, manifest: Manifest | None, names: Sequence[str], place: Callable[[Slots], Slots], limit: int
    ) -> PartyStore:
        """Return what the parties remember at a committed round, or before the first.

        place puts it on a device, whose memory may hold limit bytes of what is on disk as well.
        """
        identity = self.identity if manifest is None else manifest.identity

        def read(party: int) -> Slots:
            return place(in_order(unpack(_read(self._party(party, self.rounds_of[party][-1]), identity)), names))

        saved = SavedMemory(self.rounds_of, read, limit)
        for party in self.rounds_of:  # a damaged file is refused before anything is changed
            if saved.bytes < min(limit, MAX_BYTES_READ_AHEAD):
                saved.get(party)
            elif not self._party(party, self.rounds_of[party][-1]).exists():
                saved.get(party)  # which says so
        return PartyStore(saved)

    def load_best(self, manifest: Manifest, rows: Sequence[RoundRecord], names: Sequence[str]) -> Best | None:
        """Read the best model of the rounds up to a committed one; None without early stopping."""
        best = best_round(rows)
        if best is None:
            return None
        earlier = [best_round(rows[:at]) for at in self.committed]
        self.best_rounds = [number for number in earlier if number is not None]
        model = as_snapshot(in_order(unpack(_read(self._best(best), manifest.identity)), names), "model")
        return Best(best, float(rows[best - 1].get("monitor_loss") or 0.0), model, rounds_waited(rows))

    def load_state(self, manifest: Manifest, names: Sequence[str] = ()) -> State:
        """Read the server's state of a committed round."""
        flat = _read(self._state(manifest.round), manifest.identity)
        model = as_snapshot(unpack({k: v for k, v in flat.items() if k.startswith("model/")}), "model")
        parts = [in_order(unpack(under(part, flat)), names) for part in ("sent", SERVER_STATE)]
        return State(as_snapshot(in_order({"model": model}, names), "model"), *parts)

    def load_released(self, manifest: Manifest, names: Sequence[str] = ()) -> Snapshot | None:
        """Read the model that phases made of the state of a committed round; None where there is none."""
        flat = _read(self._state(manifest.round), manifest.identity)
        slots = unpack({k: v for k, v in flat.items() if k.startswith(f"{RELEASED}/")})
        return as_snapshot(in_order(slots, names), RELEASED) if slots else None

    def rewind(self, manifest: Manifest | None) -> None:
        """Make a committed round, or the beginning, the current one and delete what came after it."""
        if manifest is None:
            for name in (CURRENT, BEFORE):
                (self.folder / name).unlink(missing_ok=True)
        else:
            write_json(self.folder / CURRENT, manifest._asdict())
        needed = {self._state(round) for round in self.committed}
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


def _read(path: Path, identity: str) -> Tensors:
    try:
        tensors, metadata = read_tensors(path)
    except UserError as error:
        raise UserError(f"{error}; use --out for another folder") from None
    if metadata.get("identity") != identity:
        raise UserError(f"{path} is damaged: it belongs to another run; use --out for another folder")
    return tensors


def lowest_common(
    committed: Sequence[list[Manifest]], waiting: Sequence[bool], kept: Sequence[bool]
) -> list[Manifest | None]:
    """Choose for each trial the committed round it continues from.

    Trials of one stack are killed at most one commit apart: they continue from the lower round together, so that the
    stack is the one it would have been. A trial that is further ahead waits at its own last round. Trials that are
    waiting, because they had ended, failed or not begun, do not hold the others back: they were in no stack. A trial
    with a single commit begins again with the others, unless its results are kept.
    """
    newest = [manifests[0].round if manifests else 0 for manifests in committed]
    low = min((round for round, apart in zip(newest, waiting, strict=True) if not apart), default=max(newest))
    chosen: list[Manifest | None] = []
    for manifests, apart, keeps in zip(committed, waiting, kept, strict=True):
        at_low = next((m for m in manifests if m.round == low), None)
        begins_again = low == 0 and len(manifests) == 1 and not (apart or keeps)
        chosen.append(at_low or (None if begins_again or not manifests else manifests[0]))
    return chosen
