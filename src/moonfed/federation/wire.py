"""Notes as Flower's messages: words in a ConfigRecord, tensors as one safetensors blob in an ArrayRecord."""

from collections.abc import Iterable
from typing import Any, Protocol

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from safetensors import SafetensorError
from safetensors.torch import load, save

from moonfed.data.disk import apart
from moonfed.federation.ask import Note, Words

FORM = "safetensors"  # what Array calls the way in which its bytes were made


class Grid(Protocol):
    """As much of Flower's grid as we use."""

    def get_nodes(self) -> Iterable[Any]:
        """List the connected nodes."""
        ...

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages."""
        ...

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Take the replies that have come."""
        ...


def content(note: Note) -> RecordDict:
    """Put a note into the content of a message."""
    blob = save(apart(note.tensors))
    array = Array(dtype="uint8", shape=(len(blob),), stype=FORM, data=blob)
    words: dict[str, Any] = dict(note.words)
    return RecordDict({"tensors": ArrayRecord({"blob": array}), "words": ConfigRecord(words)})


def note_of(message: Message) -> Note | str:
    """Take a note out of a message, or say what is wrong with it; nothing in it is run."""
    if message.has_error():
        return f"Flower says: {message.error.reason}"
    try:
        words: Words = dict(message.content["words"])  # type: ignore[arg-type]
        array: Any = message.content["tensors"]["blob"]  # type: ignore[index]
        if array.stype != FORM:
            return f"tensors in the form {str(array.stype)[:40]!r}, not {FORM}"
        return Note(words, load(array.data))
    except (KeyError, TypeError, ValueError, SafetensorError) as error:
        return f"a message in another form: {str(error)[:200]}"


class GridPost:
    """Carries notes over Flower's grid; a site is known by the public key of its connection."""

    def __init__(self, grid: Grid, allowed: dict[str, EllipticCurvePublicKey], patience: float) -> None:
        self.grid, self.patience = grid, patience
        self.sites = {as_flower(key): site for site, key in allowed.items()}
        self.nodes: dict[str, int] = {}
        self.pending: dict[str, str] = {}  # message to site

    def present(self) -> dict[str, str]:
        """Name the sites that are connected; the word is the time at which each connected."""
        found: dict[str, str] = {}
        for node in self.grid.get_nodes():
            site = self.sites.get(bytes(node.public_key))
            if site is not None:
                self.nodes[site], found[site] = node.node_id, node.last_activated_at
        return found

    def send(self, site: str, note: Note) -> None:
        """Send a note to a site that is present."""
        message = Message(content(note), self.nodes[site], MessageType.TRAIN, ttl=self.patience)
        for number in self.grid.push_messages([message]):
            if number:
                self.pending[number] = site

    def collect(self) -> list[tuple[str, Note | str]]:
        """Take what has come."""
        if not self.pending:
            return []
        found: list[tuple[str, Note | str]] = []
        for message in self.grid.pull_messages(list(self.pending)):
            site = self.pending.pop(message.metadata.reply_to_message_id, None)
            if site is not None:
                found.append((site, note_of(message)))
        return found

    def forget(self) -> None:
        """Wait no longer for what has not come."""
        self.pending = {}


def as_flower(key: EllipticCurvePublicKey) -> bytes:
    """Write a public key as Flower's registry does."""
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
