"""Envelopes as Flower's messages: fields in a ConfigRecord, tensors as one safetensors blob in an ArrayRecord."""

from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from safetensors.torch import load, save

from moonfed.core.files import apart
from moonfed.core.types import Tensors
from moonfed.federation.protocol.request import Envelope, Fields

MAX_AXES = 16  # torch accepts more, and then fails with a recursion error of its own
FORMAT = "safetensors"  # Array's name for the serialisation of its bytes
TENSORS, FIELDS = "tensors", "words"  # names of the records on the wire


def message_content(envelope: Envelope) -> RecordDict:
    """Put an envelope into the content of a message."""
    return content_with(envelope.fields, tensor_record(envelope.tensors))


def tensor_record(tensors: Tensors) -> ArrayRecord:
    """Serialise tensors for sending."""
    blob = save(apart(tensors))
    return ArrayRecord({"blob": Array(dtype="uint8", shape=(len(blob),), stype=FORMAT, data=blob)})


def content_with(fields: Fields, tensors: ArrayRecord) -> RecordDict:
    """Put fields beside tensors that are serialised already."""
    values: dict[str, Any] = dict(fields)
    return RecordDict({TENSORS: tensors, FIELDS: ConfigRecord(values)})


def read_message(message: Message) -> Envelope | str:
    """Take the envelope out of a message, or say what is wrong with it; nothing in it is executed."""
    if message.has_error():
        return f"Flower reports: {message.error.reason}"
    try:
        fields: Fields = dict(message.content[FIELDS])  # type: ignore[arg-type]
        array: Any = message.content[TENSORS]["blob"]  # type: ignore[index]
        if not isinstance(array, Array):
            return "the tensors are not an array"
        if array.stype != FORMAT:
            return f"the tensors are in format {str(array.stype)[:40]!r}, not {FORMAT}"
        tensors = load(array.data)
        if any(tensor.dim() > MAX_AXES for tensor in tensors.values()):
            return f"a tensor has more than {MAX_AXES} axes"
        return Envelope(fields, tensors)
    except Exception as error:  # a message comes from outside: whatever is in it must not end its reader
        return malformed(error)


def malformed(error: Exception) -> str:
    """Describe a message that Flower or safetensors cannot read."""
    return f"malformed message: {type(error).__name__}: {str(error)[:200]}"


def flower_key_bytes(key: EllipticCurvePublicKey) -> bytes:
    """Encode a public key as Flower's registry does."""
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
