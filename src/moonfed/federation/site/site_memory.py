"""What a site remembers of a run, on its own disk: its slots after two rounds, and its last reply."""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path

from moonfed.core.errors import UserError
from moonfed.core.files import make_folder, read_tensors, short, write_bytes, write_tensors
from moonfed.core.tree import pack, unpack
from moonfed.core.types import Slots
from moonfed.data.readers.encoding import Encoding
from moonfed.data.readers.schema import checked
from moonfed.federation.protocol.rejection import Refused
from moonfed.federation.protocol.request import Note, Words, encoding_digest

ENCODING = "encoding.json"
ANEW = "a new run (federation start with another --out) takes it back"


class Memory:
    """A folder a run; its files are named by round and by nonce.

    A round that was trained is not yet a round that was accepted: the slots it started from stay until the next ask
    says which of the two the coordinator knows of.
    """

    def __init__(self, folder: Path, run: str, say: Callable[[str], None] = lambda line: None) -> None:
        self.folder, self.say = folder / run, say
        make_folder(self.folder)

    def newest(self) -> int:
        """The last round that was trained here, 0 before the first."""
        rounds = [path.stem.removeprefix("slots-") for path in self.folder.glob("slots-*.safetensors")]
        return max((int(round) for round in rounds if round.isdigit()), default=0)

    def slots(self, base: int) -> Slots:
        """Go back to the slots after an accepted round."""
        path = self._round(base)
        try:
            if not path.exists():
                raise UserError(f"{path} is gone")
            return unpack(read_tensors(path)[0])
        except UserError as error:
            self.say(str(error))
            what = f"what this site remembers of round {base} is gone or damaged, and it cannot go on in this run"
            raise Refused("no memory", f"{what}; {ANEW}") from None

    def keep_encoding(self, text: str) -> None:
        """Keep how rows become inputs in this run, if the coordinator has said so."""
        if text:
            write_bytes(self.folder / ENCODING, text.encode())

    def encoding(self, digest: str) -> Encoding | None:
        """Find the encoding of a digest, which came with the enrolment; None for a run that has none."""
        if not digest:
            return None
        try:
            text = (self.folder / ENCODING).read_text(encoding="utf-8")
            if encoding_digest(text) != digest:
                raise ValueError("another encoding")
        except (OSError, ValueError) as error:
            self.say(f"{self.folder / ENCODING}: {short(error)}")
            what = "how rows are read in this run is no longer known here, and this site cannot go on in it"
            raise Refused("no memory", f"{what}; {ANEW}") from None
        try:
            return checked(json.loads(text))
        except (ValueError, RecursionError, AttributeError):
            raise Refused("malformed", "the encoding of this run is no JSON object") from None

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
