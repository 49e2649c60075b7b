"""Notes as Flower's messages: words in a ConfigRecord, tensors as one safetensors blob in an ArrayRecord."""

from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from safetensors.torch import load, save

from moonfed.core.files import apart
from moonfed.core.types import Tensors
from moonfed.federation.protocol.request import Note, Words

MOST_AXES = 16  # torch goes on beyond, and then falls into its own recursion
FORM = "safetensors"  # what Array calls the way in which its bytes were made


def content(note: Note) -> RecordDict:
    """Put a note into the content of a message."""
    return with_words(note, record(note.tensors))


def record(tensors: Tensors) -> ArrayRecord:
    """Put tensors into the form in which they travel."""
    blob = save(apart(tensors))
    return ArrayRecord({"blob": Array(dtype="uint8", shape=(len(blob),), stype=FORM, data=blob)})


def with_words(note: Note, tensors: ArrayRecord) -> RecordDict:
    """Put a note's words beside tensors that are in their form already."""
    words: dict[str, Any] = dict(note.words)
    return RecordDict({"tensors": tensors, "words": ConfigRecord(words)})


def note_of(message: Message) -> Note | str:
    """Take a note out of a message, or say what is wrong with it; nothing in it is run."""
    if message.has_error():
        return f"Flower says: {message.error.reason}"
    try:
        words: Words = dict(message.content["words"])  # type: ignore[arg-type]
        array: Any = message.content["tensors"]["blob"]  # type: ignore[index]
        if not isinstance(array, Array):
            return "tensors that are no array"
        if array.stype != FORM:
            return f"tensors in the form {str(array.stype)[:40]!r}, not {FORM}"
        tensors = load(array.data)
        if any(tensor.dim() > MOST_AXES for tensor in tensors.values()):
            return f"a tensor of more than {MOST_AXES} axes"
        return Note(words, tensors)
    except Exception as error:  # whatever a stranger can think of: a message must not end who reads it
        return f"a message in another form: {type(error).__name__}: {str(error)[:200]}"


def as_flower(key: EllipticCurvePublicKey) -> bytes:
    """Write a public key as Flower's registry does."""
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
