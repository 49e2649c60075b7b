"""The wire format, pinned: renaming things in the code changes nothing of what is sent and signed."""

import hashlib
import json
from dataclasses import asdict

import torch
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP384R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA384

from moonfed.federation.flower.messages import content_with, tensor_record
from moonfed.federation.protocol import signing
from moonfed.federation.protocol.request import (
    EFFECTIVE_STEPS,
    ENROL,
    PROCESS,
    REFUSED,
    REJECT,
    ROWS,
    STEPS,
    TRAIN,
    Request,
    reply_envelope,
    request_envelope,
)
from moonfed.federation.protocol.signing import Claim

CLAIM = Claim("0" * 16, 3, "1" * 32, "ab" * 32, "north")
NUMBERS = {"steps": 12, "mass": 46.25, "rows": 96}


def tensors():
    return {"delta/w": torch.arange(6.0).reshape(2, 3), "buffers/count": torch.tensor(7)}


def test_the_signed_bytes_of_an_update_are_those_of_the_first_version():
    message = signing._message(CLAIM, NUMBERS, tensors())  # pyright: ignore[reportPrivateUsage]
    assert hashlib.sha256(message).hexdigest() == "7c42d04fc92be6fec42bd15f993319e3b59c10dbf1730dda79667613c0b9553a"


def test_a_request_is_sorted_json_signed_under_its_domain():
    key = generate_private_key(SECP384R1())
    request = Request(TRAIN, CLAIM, 2, 1, 0.5, "{}", encoding="ee", said="x", version="0")
    envelope = request_envelope(key, request, {})
    text = json.dumps(
        {
            "base": 2,
            "claim": {"model": "ab" * 32, "nonce": "1" * 32, "round": 3, "run": "0" * 16, "site": "north"},
            "config": "{}",
            "encoding": "ee",
            "kind": "train",
            "party": 1,
            "said": "x",
            "version": "0",
            "work": 0.5,
        }
    )
    assert set(envelope.fields) == {"ask", "signature"}
    assert envelope.fields["ask"] == text
    signature = envelope.fields["signature"]
    assert isinstance(signature, bytes)
    key.public_key().verify(signature, b"moonfed ask v1\n" + text.encode(), ECDSA(SHA384()))


def test_a_reply_carries_its_claim_its_signature_and_its_numbers():
    fields = reply_envelope(CLAIM, NUMBERS, {}, b"s").fields
    assert set(fields) == {"claim", "signature", "number/steps", "number/mass", "number/rows"}
    assert json.loads(str(fields["claim"])) == asdict(CLAIM)


def test_names_on_the_wire_stay():
    assert (ENROL, TRAIN, REJECT) == ("enrol", "train", "tell")
    assert (STEPS, EFFECTIVE_STEPS, ROWS, PROCESS, REFUSED) == ("steps", "mass", "rows", "process", "refused")
    assert set(content_with({"a": 1}, tensor_record(tensors()))) == {"tensors", "words"}
