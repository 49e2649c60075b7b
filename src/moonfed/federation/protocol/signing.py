"""Signatures of updates: a canonical message over claim, numbers and tensors, signed with the site's key."""

import hashlib
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.hashes import SHA384
from torch import Tensor

from moonfed.core.types import Tensors
from moonfed.federation.protocol.rejection import Rejection

Numbers: TypeAlias = Mapping[str, int | float]

# The same key also signs the node's logins to Flower: the domain keeps a signature of one kind from serving as another.
UPDATE_DOMAIN = "moonfed update v1"


@dataclass(frozen=True)
class Claim:
    """What a reply belongs to: run, round, request, model and site."""

    run: str
    round: int
    nonce: str  # of the request that is answered
    model: str  # digest of the state that the site was sent
    site: str


def digest(tensors: Tensors) -> str:
    """Hash named tensors by name, dtype, shape and content; order and memory layout do not matter."""
    hashed = hashlib.sha256(_length(len(tensors)))
    for name in sorted(tensors):
        tensor = tensors[name]
        hashed.update(_text(name) + _text(str(tensor.dtype)) + _length(tensor.dim()))
        hashed.update(b"".join(_length(size) for size in tensor.shape))
        content = _little_endian(tensor)
        hashed.update(_length(len(content)))
        hashed.update(content)
    return hashed.hexdigest()


def sign(key: EllipticCurvePrivateKey, claim: Claim, numbers: Numbers, tensors: Tensors) -> bytes:
    """Sign an update with the key of its site."""
    return key.sign(_message(claim, numbers, tensors), ECDSA(SHA384()))


def verify(public: EllipticCurvePublicKey, claim: Claim, numbers: Numbers, tensors: Tensors, signature: bytes) -> None:
    """Reject an update that is not, bit for bit, what the owner of the key signed."""
    try:
        public.verify(signature, _message(claim, numbers, tensors), ECDSA(SHA384()))
    except InvalidSignature:
        detail = "the signature does not match: signed with another key, or altered after signing"
        raise Rejection("altered", detail, claim.site, claim.round) from None


def _message(claim: Claim, numbers: Numbers, tensors: Tensors) -> bytes:
    parts = [_text(UPDATE_DOMAIN), _text(claim.run), _number(claim.round)]
    parts += [_text(value) for value in (claim.nonce, claim.model, claim.site)]
    parts.append(_length(len(numbers)))
    for name in sorted(numbers):
        parts += [_text(name), _number(numbers[name])]
    return b"".join([*parts, _text(digest(tensors))])


def _length(size: int) -> bytes:
    return struct.pack("<Q", size)


def _text(text: str) -> bytes:
    content = text.encode("utf-8", "surrogatepass")
    return _length(len(content)) + content


def _number(value: float) -> bytes:
    """Encode an integer by its digits and a float by its bits, so that 1 and 1.0 differ."""
    return b"i" + _text(str(int(value))) if isinstance(value, int) else b"f" + struct.pack("<d", value)


def _little_endian(tensor: Tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    content = flat.view(torch.uint8).numpy()
    if sys.byteorder == "big":
        content = content.reshape(-1, flat.element_size())[:, ::-1].copy().reshape(-1)
    return content.data
