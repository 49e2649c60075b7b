"""What a site remembers of a run, on its own disk: its slots after two rounds, and its last reply."""

import json
from base64 import b64decode, b64encode
from pathlib import Path

from moonfed.core.errors import UserError
from moonfed.core.tree import pack, unpack
from moonfed.core.types import Slots
from moonfed.data.disk import make_folder, read_tensors, write_tensors
from moonfed.federation.ask import Note, Words
from moonfed.federation.seal import Refused


class Memory:
    """A folder a run; its files are named by round and by nonce.

    A round that was trained is not yet a round that was accepted: the slots it started from stay until the next ask
    says which of the two the coordinator knows of.
    """

    def __init__(self, folder: Path, run: str) -> None:
        self.folder = folder / run
        make_folder(self.folder)

    def newest(self) -> int:
        """The last round that was trained here, 0 before the first."""
        rounds = [path.stem.removeprefix("slots-") for path in self.folder.glob("slots-*.safetensors")]
        return max((int(round) for round in rounds if round.isdigit()), default=0)

    def slots(self, base: int) -> Slots:
        """Go back to the slots after an accepted round."""
        path = self._round(base)
        if not path.exists():
            raise Refused("no memory", f"{path} is gone: this site cannot go on from round {base}")
        try:
            return unpack(read_tensors(path)[0])
        except UserError as error:
            raise Refused("no memory", str(error)) from None

    def stored(self, nonce: str) -> Note | None:
        """Find the reply that was given to this very ask before; a damaged one counts as none."""
        path = self._reply(nonce)
        if not path.exists():
            return None
        try:
            tensors, facts = read_tensors(path)
        except UserError:
            return None
        return Note(_words(facts["words"]), tensors)

    def keep(self, base: int, round: int, slots: Slots, nonce: str, reply: Note) -> None:
        """Keep what a round left and what was answered; forget all but that and where it started from."""
        write_tensors(self._round(round), pack(slots))
        write_tensors(self._reply(nonce), reply.tensors, words=_text(reply.words))
        needed = {self._round(base), self._round(round), self._reply(nonce)}
        for path in self.folder.glob("*.safetensors"):
            if path not in needed:
                path.unlink(missing_ok=True)

    def _round(self, round: int) -> Path:
        return self.folder / f"slots-{round}.safetensors"

    def _reply(self, nonce: str) -> Path:
        return self.folder / f"reply-{nonce}.safetensors"


def _text(words: Words) -> str:
    return json.dumps({k: ["b", b64encode(v).decode()] if isinstance(v, bytes) else ["", v] for k, v in words.items()})


def _words(text: str) -> Words:
    return {k: b64decode(v) if kind else v for k, (kind, v) in json.loads(text).items()}
