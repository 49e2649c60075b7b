"""What a site signs, and how the coordinator knows that nothing of it was changed on the way."""

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
from moonfed.federation.protocol.rejection import Refused

Numbers: TypeAlias = Mapping[str, int | float]

DOMAIN = "moonfed update v1"  # the key also signs the node's logins: a signature for one is none for the other


@dataclass(frozen=True)
class Claim:
    """What an update says of itself: of which run and round it is, to which ask, from which model, by whom."""

    run: str
    round: int
    nonce: str
    model: str  # digest of the state that the site was sent
    site: str


def digest(tensors: Tensors) -> str:
    """Hash named tensors: names, types, shapes and every bit, whatever their order or their layout in memory."""
    found = hashlib.sha256(_count(len(tensors)))
    for name in sorted(tensors):
        tensor = tensors[name]
        found.update(_word(name) + _word(str(tensor.dtype)) + _count(tensor.dim()))
        found.update(b"".join(_count(size) for size in tensor.shape))
        content = _little_endian(tensor)
        found.update(_count(len(content)))
        found.update(content)
    return found.hexdigest()


def sign(key: EllipticCurvePrivateKey, claim: Claim, numbers: Numbers, tensors: Tensors) -> bytes:
    """Sign an update with the key of its site."""
    return key.sign(_message(claim, numbers, tensors), ECDSA(SHA384()))


def verify(public: EllipticCurvePublicKey, claim: Claim, numbers: Numbers, tensors: Tensors, signature: bytes) -> None:
    """Refuse an update that is not, bit for bit, what the owner of the key signed."""
    try:
        public.verify(signature, _message(claim, numbers, tensors), ECDSA(SHA384()))
    except InvalidSignature:
        detail = "the signature does not fit what came: another key signed it, or it was altered on the way"
        raise Refused("altered", detail, claim.site, claim.round) from None


def _message(claim: Claim, numbers: Numbers, tensors: Tensors) -> bytes:
    parts = [_word(DOMAIN), _word(claim.run), _number(claim.round)]
    parts += [_word(word) for word in (claim.nonce, claim.model, claim.site)]
    parts.append(_count(len(numbers)))
    for name in sorted(numbers):
        parts += [_word(name), _number(numbers[name])]
    return b"".join([*parts, _word(digest(tensors))])


def _count(size: int) -> bytes:
    return struct.pack("<Q", size)


def _word(text: str) -> bytes:
    content = text.encode("utf-8", "surrogatepass")
    return _count(len(content)) + content


def _number(value: float) -> bytes:
    """Write a whole number by its digits and a float by its bits, so that 1 and 1.0 are two things."""
    return b"i" + _word(str(int(value))) if isinstance(value, int) else b"f" + struct.pack("<d", value)


def _little_endian(tensor: Tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    content = flat.view(torch.uint8).numpy()
    if sys.byteorder == "big":
        content = content.reshape(-1, flat.element_size())[:, ::-1].copy().reshape(-1)
    return content.data
