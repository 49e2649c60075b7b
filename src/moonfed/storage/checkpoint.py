"""Checkpoints: state, party memory and round number, committed by renaming one small manifest into place."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from moonfed.core.errors import UserError
from moonfed.core.files import read_json, read_tensors, write_json, write_tensors
from moonfed.core.tree import in_order, pack, prefixed, under, unpack
from moonfed.core.types import Slots, State, Tensors, as_snapshot

FORMAT = 1
SERVER_STATE = "kept"  # the name on disk since format 1
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
    """A folder with the last two committed rounds; a round writes only the files of its own cohort.

    The previous round is kept so that trials of one stack, killed between two commits, can all return to their lowest
    common round.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rounds_of: dict[int, list[int]] = {}  # the rounds for which a party's file exists, oldest first

    def manifests(self) -> list[Manifest]:
        """List the committed rounds that can be restored, newest first."""
        found = [self._manifest(name) for name in (CURRENT, BEFORE)]
        return list({m.round: m for m in reversed(found) if m is not None}.values())[::-1]

    def write(self, round: int, state: State, changed: dict[int, Slots], identity: str) -> None:
        """Write the state and the memory of the parties that changed, under names of their round."""
        flat = pack({"model": state.model})
        flat |= prefixed("sent", pack(state.sent)) | prefixed(SERVER_STATE, pack(state.server_state))
        files = {self._state(round): flat} | {self._party(k, round): pack(slots) for k, slots in changed.items()}
        for path, tensors in files.items():
            write_tensors(path, tensors, identity=identity)

    def commit(self, manifest: Manifest, changed: Sequence[int]) -> None:
        """Commit a round: from the rename on, a resume finds it. Then delete what no manifest needs."""
        old = self._manifest(CURRENT)
        if old is not None:
            write_json(self.folder / BEFORE, old._asdict())
        write_json(self.folder / CURRENT, manifest._asdict())
        self._state(manifest.round - 2).unlink(missing_ok=True)
        for party in changed:
            *stale, last, new = [0, 0, *self.rounds_of.get(party, []), manifest.round]
            for round in stale:
                self._party(party, round).unlink(missing_ok=True)
            self.rounds_of[party] = [last, new]

    def load(
        self, manifest: Manifest, cohorts: Sequence[Sequence[int]], names: Sequence[str] = ()
    ) -> tuple[State, dict[int, Slots]]:
        """Read a committed round; cohorts lists who took part in each round, names the model's tensors in order."""
        self.rounds_of = {}
        for round, cohort in enumerate(cohorts[: manifest.round], start=1):
            for party in cohort if manifest.memory else ():
                self.rounds_of[party] = [*self.rounds_of.get(party, []), round][-2:]
        flat = _read(self._state(manifest.round), manifest)
        model = as_snapshot(unpack({k: v for k, v in flat.items() if k.startswith("model/")}), "model")
        parts = [in_order(unpack(under(part, flat)), names) for part in ("sent", SERVER_STATE)]
        state = State(as_snapshot(in_order({"model": model}, names), "model"), *parts)
        newest = {party: self._party(party, rounds[-1]) for party, rounds in self.rounds_of.items()}
        return state, {party: in_order(unpack(_read(path, manifest)), names) for party, path in newest.items()}

    def rewind(self, manifest: Manifest | None) -> None:
        """Make a committed round, or the beginning, the current one and delete what came after it."""
        if manifest is None:
            for name in (CURRENT, BEFORE):
                (self.folder / name).unlink(missing_ok=True)
        else:
            write_json(self.folder / CURRENT, manifest._asdict())
        round = manifest.round if manifest else 0
        needed = {self._state(round), self._state(round - 1)}
        needed |= {self._party(party, r) for party, rounds in self.rounds_of.items() for r in rounds}
        for path in [*self.folder.glob("*.safetensors"), *self.folder.glob(".*.tmp")]:
            if path not in needed:
                path.unlink(missing_ok=True)

    def check(self, identity: str, data: str) -> None:
        """Refuse a checkpoint that other settings or other data wrote."""
        for manifest in self.manifests()[:1]:
            for what, ours, theirs in (("settings", identity, manifest.identity), ("data", data, manifest.data)):
                if ours != theirs:
                    raise UserError(
                        f"{self.folder.parent} was run with other {what} ({theirs[:8]}, now {ours[:8]}); "
                        f"use the {what} it was started with, or --out for another folder"
                    )

    def _manifest(self, name: str) -> Manifest | None:
        path = self.folder / name
        if not path.exists():
            return None
        value: dict[str, Any] = read_json(path)
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


def lowest_common(committed: Sequence[list[Manifest]]) -> list[Manifest | None]:
    """Choose for each trial the committed round it continues from.

    Trials of one stack are killed at most one round apart: they continue from the lower round together, so that the
    stack is the one it would have been. A trial that is further ahead waits at its own last round.
    """
    low = min(manifests[0].round if manifests else 0 for manifests in committed)
    chosen: list[Manifest | None] = []
    for manifests in committed:
        at_low = next((m for m in manifests if m.round == low), None)
        begins_again = low == 0 and [m.round for m in manifests] == [1]
        chosen.append(at_low or (None if begins_again or not manifests else manifests[0]))
    return chosen
