"""Signed requests from the coordinator to a site, and the form of the replies."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, TypeAlias

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.hashes import SHA384

from moonfed import __version__
from moonfed.core.types import Tensors
from moonfed.federation.protocol.rejection import Rejection
from moonfed.federation.protocol.signing import Claim, digest

Fields: TypeAlias = Mapping[str, str | int | float | bytes]

# Names and values below are part of the wire format, also where the code uses another word.
REQUEST_DOMAIN = "moonfed ask v1"
ENROL, TRAIN, QUERY, REJECT = "enrol", "train", "query", "tell"  # kinds of requests
ROWS, STEPS, EFFECTIVE_STEPS = "rows", "steps", "mass"  # numbers of an update; a_i of FedNova is sent as "mass"
OWN_TEST = "own_test"  # in an answer: 1 if it is about test rows of the site's own
PROCESS = "process"  # number in a reply: the process of the site that made it
REFUSED = "refused"  # field of a reply that says why there is no update

MAX_ENCODING_CHARS = 16 << 20
HEX_NAME = re.compile(r"[0-9a-f]{8,64}")  # runs and nonces, which become file names at the site


class Envelope(NamedTuple):
    """One message in either direction: a few named values, and named tensors."""

    fields: Fields
    tensors: Tensors
    reply_bytes: int = 0  # of the tensors in the reply to a request, where known; not sent


@dataclass(frozen=True)
class Request:
    """One request to one site. The names of the fields are sent as they are here."""

    kind: str  # ENROL: report your rows; TRAIN: train a round; QUERY: sum over your rows; REJECT: why you cannot join
    claim: Claim
    base: int = 0  # the site's last round that was accepted, whose memory it starts from; 0: none yet
    party: int = 0
    work: float = 1.0  # the fraction of its steps that the site is to take
    config: str = "{}"  # the settings of the run, as JSON
    encoding: str = ""  # digest of the data encoding, which is sent once, with the enrolment
    said: str = ""  # the explanation in a REJECT
    query: str = ""  # the name of a QUERY, which must be one of the run's algorithm
    version: str = __version__


def request_envelope(key: EllipticCurvePrivateKey, request: Request, tensors: Tensors) -> Envelope:
    """Sign a request; its claim holds the digest of the tensors that go with it."""
    values = {k: v for k, v in asdict(request).items() if v or k != "query"}  # other requests are as they were before
    text = json.dumps(values, sort_keys=True)
    return Envelope({"ask": text, "signature": key.sign(_message(text), ECDSA(SHA384()))}, tensors)


def read_request(public: EllipticCurvePublicKey, envelope: Envelope) -> Request:
    """Read a request, or reject it unless the coordinator signed it and nobody changed it."""
    text, signature = envelope.fields.get("ask"), envelope.fields.get("signature")
    if not isinstance(text, str) or not isinstance(signature, bytes):
        raise Rejection("malformed", "this message is not a request")
    try:
        public.verify(signature, _message(text), ECDSA(SHA384()))
    except InvalidSignature:
        raise Rejection("altered", "the request was not signed by the coordinator of this federation") from None
    values: dict[str, Any] = json.loads(text)
    if values.get("version") != __version__:
        theirs = f"moonfed {values['version']}" if "version" in values else "an older moonfed"
        detail = f"the coordinator runs {theirs}, this site {__version__}; install the same version"
        raise Rejection("version mismatch", detail)
    values["claim"] = Claim(**values["claim"])
    request = Request(**values)
    if not HEX_NAME.fullmatch(request.claim.run) or not HEX_NAME.fullmatch(request.claim.nonce):
        raise Rejection("malformed", "run and nonce must be hexadecimal")
    encoding = envelope.fields.get("encoding", "")
    if not isinstance(encoding, str) or len(encoding) > MAX_ENCODING_CHARS:
        raise Rejection("malformed", f"an encoding must be text of at most {MAX_ENCODING_CHARS >> 20} MiB")
    if encoding and encoding_digest(encoding) != request.encoding:
        raise Rejection("altered", "the encoding is not the one that the coordinator signed")
    if digest(envelope.tensors) != request.claim.model:
        raise Rejection("altered", "the model is not the one that the coordinator signed")
    return request


def encoding_digest(text: str) -> str:
    """Hash an encoding as it is sent."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def reply_envelope(claim: Claim, numbers: Mapping[str, int | float], tensors: Tensors, signature: bytes) -> Envelope:
    """Put a signed reply into an envelope."""
    fields: dict[str, str | int | float | bytes] = {"claim": json.dumps(asdict(claim)), "signature": signature}
    return Envelope(fields | {f"number/{name}": value for name, value in numbers.items()}, tensors)


def read_reply(envelope: Envelope) -> tuple[Claim, dict[str, int | float], bytes]:
    """Take claim, numbers and signature out of a reply; nothing is verified here."""
    try:
        claim = Claim(**json.loads(str(envelope.fields["claim"])))
        signature = envelope.fields["signature"]
    except (KeyError, TypeError, ValueError, RecursionError):
        raise Rejection("malformed", "this message is not a reply") from None
    if not isinstance(signature, bytes):
        raise Rejection("malformed", "the signature is missing")
    numbers: dict[str, int | float] = {
        name.removeprefix("number/"): value
        for name, value in envelope.fields.items()
        if name.startswith("number/") and isinstance(value, int | float)
    }
    return claim, numbers, signature


def _message(text: str) -> bytes:
    return f"{REQUEST_DOMAIN}\n{text}".encode()
