"""What a site keeps of a run on its own disk: its memory after the last two rounds, and its last reply."""

import json
import logging
from base64 import b64decode, b64encode
from pathlib import Path

from moonfed.core.errors import UserError
from moonfed.core.files import make_folder, pack, read_tensors, short, unpack, write_bytes, write_tensors
from moonfed.core.types import Slots, Snapshot
from moonfed.data.readers.encoding import Encoding
from moonfed.data.readers.schema import validate_encoding
from moonfed.federation.protocol.rejection import Rejection
from moonfed.federation.protocol.request import Envelope, Fields, encoding_digest

logger = logging.getLogger(__name__)
ENCODING = "encoding.json"
PERSONAL = "personal.safetensors"  # this site's own model, where the algorithm trains one
STATE_LOST = "state lost"
NEW_RUN = "a new run (federation start with another --out) accepts it again"


class SiteMemory:
    """One folder per run; its files are named by round and by nonce.

    A round that was trained is not necessarily accepted. The memory that it started from is therefore kept until the
    next request says which of the two rounds the coordinator knows.
    """

    def __init__(self, folder: Path, run: str) -> None:
        self.folder = folder / run
        make_folder(self.folder)

    def newest_round(self) -> int:
        """Return the last round that was trained here, 0 before the first."""
        rounds = [path.stem.removeprefix("slots-") for path in self.folder.glob("slots-*.safetensors")]
        return max((int(round) for round in rounds if round.isdigit()), default=0)

    def load_slots(self, base: int) -> Slots:
        """Load the memory after an accepted round."""
        path = self._slots_path(base)
        try:
            if not path.exists():
                raise UserError(f"{path} is missing")
            return unpack(read_tensors(path)[0])
        except UserError as error:
            logger.warning("%s", error)
            what = f"this site's memory of round {base} is lost or damaged, so it cannot continue in this run"
            raise Rejection(STATE_LOST, f"{what}; {NEW_RUN}") from None

    def save_encoding(self, text: str) -> None:
        """Keep the data encoding of this run, if the coordinator sent one."""
        if text:
            write_bytes(self.folder / ENCODING, text.encode())

    def load_encoding(self, digest: str) -> Encoding | None:
        """Load the encoding with a digest, which came with the enrolment; None for a run without one."""
        if not digest:
            return None
        try:
            text = (self.folder / ENCODING).read_text(encoding="utf-8")
            if encoding_digest(text) != digest:
                raise ValueError("its digest is not the one that the coordinator sent")
        except (OSError, ValueError) as error:
            logger.warning("%s: %s", self.folder / ENCODING, short(error))
            what = "this site has lost the data encoding of this run, so it cannot continue in it"
            raise Rejection(STATE_LOST, f"{what}; {NEW_RUN}") from None
        try:
            return validate_encoding(json.loads(text))
        except (ValueError, RecursionError, AttributeError):
            raise Rejection("malformed", "the encoding of this run is not a JSON object") from None

    def stored_reply(self, nonce: str) -> Envelope | None:
        """Load the reply to a request that was answered before; None if there is none or it is damaged."""
        path = self._reply_path(nonce)
        if not path.exists():
            return None
        try:
            tensors, metadata = read_tensors(path)
        except UserError:
            return None
        return Envelope(_decode_fields(metadata["words"]), tensors)

    def save_personal(self, model: Snapshot, round: int) -> None:
        """Keep this site's own model after a round, by the names of its tensors in the network."""
        write_tensors(self.folder / PERSONAL, model.weights | model.buffers, round=str(round), run=self.folder.name)

    def save_round(self, base: int, round: int, slots: Slots, nonce: str, reply: Envelope) -> None:
        """Save the memory after a round and the reply; delete all but these and the memory it started from."""
        write_tensors(self._slots_path(round), pack(slots))
        write_tensors(self._reply_path(nonce), reply.tensors, words=_encode_fields(reply.fields))
        needed = {self._slots_path(base), self._slots_path(round), self._reply_path(nonce), self.folder / PERSONAL}
        for path in self.folder.glob("*.safetensors"):
            if path not in needed:
                path.unlink(missing_ok=True)

    def _slots_path(self, round: int) -> Path:
        return self.folder / f"slots-{round}.safetensors"

    def _reply_path(self, nonce: str) -> Path:
        return self.folder / f"reply-{nonce}.safetensors"


def _encode_fields(fields: Fields) -> str:
    return json.dumps({k: ["b", b64encode(v).decode()] if isinstance(v, bytes) else ["", v] for k, v in fields.items()})


def _decode_fields(text: str) -> Fields:
    return {k: b64decode(v) if kind else v for k, (kind, v) in json.loads(text).items()}
