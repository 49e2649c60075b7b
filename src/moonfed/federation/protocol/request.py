"""What the coordinator asks of a site, signed, so that a site trains for nobody else."""

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
from moonfed.federation.protocol.rejection import Refused
from moonfed.federation.protocol.signing import Claim, digest

Words: TypeAlias = Mapping[str, str | int | float | bytes]

DOMAIN = "moonfed ask v1"
ENROL, TRAIN, TELL = "enrol", "train", "tell"
PROCESS = "process"  # a number in replies: which process of the site made it
MOST_ENCODING = 16 << 20  # characters
NAME = re.compile(r"[0-9a-f]{8,64}")  # of runs and nonces: they become names of files


class Note(NamedTuple):
    """What travels: a few words and numbers, and named tensors."""

    words: Words
    tensors: Tensors


@dataclass(frozen=True)
class Ask:
    """One question to one site."""

    kind: str  # enrol: what do you hold? train: a round, please; tell: you are not taken, and why
    claim: Claim
    base: int = 0  # the site's last round that was accepted: its memory goes back to it; 0: it has none yet
    party: int = 0
    work: float = 1.0  # the share of its steps that the site is to take
    config: str = "{}"  # the settings of the run, as JSON
    encoding: str = ""  # digest of how rows become inputs; what it is of comes with the enrolment
    said: str = ""  # to tell
    version: str = __version__


def ask_note(key: EllipticCurvePrivateKey, ask: Ask, tensors: Tensors) -> Note:
    """Sign an ask; its claim holds the digest of the tensors that go with it."""
    text = json.dumps(asdict(ask), sort_keys=True)
    return Note({"ask": text, "signature": key.sign(_message(text), ECDSA(SHA384()))}, tensors)


def read_ask(public: EllipticCurvePublicKey, note: Note) -> Ask:
    """Read an ask that the coordinator signed and nobody changed, or refuse it."""
    text, signature = note.words.get("ask"), note.words.get("signature")
    if not isinstance(text, str) or not isinstance(signature, bytes):
        raise Refused("malformed", "this is no ask")
    try:
        public.verify(signature, _message(text), ECDSA(SHA384()))
    except InvalidSignature:
        raise Refused("altered", "the coordinator of this federation did not sign this ask") from None
    values: dict[str, Any] = json.loads(text)
    if values.get("version") != __version__:
        other = f"moonfed {values['version']}" if "version" in values else "an older moonfed"
        raise Refused("another version", f"the coordinator runs {other}, this site {__version__}; install the same")
    values["claim"] = Claim(**values["claim"])
    ask = Ask(**values)
    if not NAME.fullmatch(ask.claim.run) or not NAME.fullmatch(ask.claim.nonce):
        raise Refused("malformed", "run and nonce are written in hexadecimal digits")
    told = note.words.get("encoding", "")
    if not isinstance(told, str) or len(told) > MOST_ENCODING:
        raise Refused("malformed", f"an encoding is text of at most {MOST_ENCODING >> 20} MiB")
    if told and encoding_digest(told) != ask.encoding:
        raise Refused("altered", "the encoding is not the one that the coordinator signed")
    if digest(note.tensors) != ask.claim.model:
        raise Refused("altered", "the model is not the one that the coordinator signed")
    return ask


def encoding_digest(text: str) -> str:
    """Hash an encoding as it travels."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def reply_note(claim: Claim, numbers: Mapping[str, int | float], tensors: Tensors, signature: bytes) -> Note:
    """Put a signed reply into words and tensors."""
    words: dict[str, str | int | float | bytes] = {"claim": json.dumps(asdict(claim)), "signature": signature}
    return Note(words | {f"number/{name}": value for name, value in numbers.items()}, tensors)


def read_reply(note: Note) -> tuple[Claim, dict[str, int | float], bytes]:
    """Take a reply apart; whether to believe it is for the gate to say."""
    try:
        claim = Claim(**json.loads(str(note.words["claim"])))
        signature = note.words["signature"]
    except (KeyError, TypeError, ValueError, RecursionError):
        raise Refused("malformed", "this is no reply") from None
    if not isinstance(signature, bytes):
        raise Refused("malformed", "no signature")
    numbers: dict[str, int | float] = {
        name.removeprefix("number/"): value
        for name, value in note.words.items()
        if name.startswith("number/") and isinstance(value, int | float)
    }
    return claim, numbers, signature


def _message(text: str) -> bytes:
    return f"{DOMAIN}\n{text}".encode()
