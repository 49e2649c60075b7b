"""A signature is valid for one update of one site in reply to one request, bit for bit, and for nothing else."""

import hashlib
import json
import struct
from dataclasses import fields, replace

import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key

from moonfed.federation.protocol import signing
from moonfed.federation.protocol.rejection import Rejection
from moonfed.federation.protocol.signing import Claim, digest, sign, verify

KEY = generate_private_key(SECP384R1())
CLAIM = Claim("run-1", 3, "6f6e6365", "ab" * 32, "north")
NUMBERS = {"steps": 12, "mass": 46.25, "rows": 96}


def some_tensors():
    rng = torch.Generator().manual_seed(5)
    return {
        "delta/w": torch.randn(4, 3, generator=rng),
        "delta/half": torch.randn(3, generator=rng).to(torch.bfloat16),
        "buffers/count": torch.tensor(7),
        "slots/mask": torch.tensor([True, False]),
        "slots/none": torch.zeros(0, 2),
    }


def flipped(tensors, name, bit):
    """Tensors with one bit of one of them turned over."""
    content = tensors[name].clone().reshape(-1)
    content.view(torch.uint8)[bit // 8] ^= 1 << bit % 8
    return tensors | {name: content.reshape(tensors[name].shape)}


def assert_rejected(claim=CLAIM, numbers=NUMBERS, tensors=None, signature=b"", public=None):
    with pytest.raises(Rejection) as caught:
        verify(public or KEY.public_key(), claim, numbers, some_tensors() if tensors is None else tensors, signature)
    assert (caught.value.reason, caught.value.site) == ("altered", claim.site)


def test_the_digest_is_sha256_of_names_types_shapes_and_little_endian_bytes_each_with_its_length():
    def word(content):
        return struct.pack("<Q", len(content)) + content

    by_hand = struct.pack("<Q", 2)
    by_hand += word(b"a") + word(b"torch.int64") + struct.pack("<Q", 0) + word(struct.pack("<q", -3))
    by_hand += word(b"b") + word(b"torch.float32") + struct.pack("<QQQ", 2, 2, 1) + word(struct.pack("<ff", 1.5, -2))
    tensors = {"b": torch.tensor([[1.5], [-2.0]]), "a": torch.tensor(-3)}
    assert digest(tensors) == hashlib.sha256(by_hand).hexdigest()


def test_order_and_layout_do_not_matter():
    tensors = some_tensors()
    w = tensors["delta/w"]
    strided = torch.stack([w, w], -1)[..., 0]
    assert not strided.is_contiguous()
    assert digest(dict(reversed(tensors.items()))) == digest(tensors) == digest(tensors | {"delta/w": strided})


def test_no_two_different_inputs_share_a_digest():
    one, two = torch.tensor([1.0]), torch.tensor([2.0])
    different = [
        {},
        {"": torch.zeros(0)},
        {"a": torch.zeros(0)},
        {"a": torch.zeros(0, 1)},
        {"a": torch.zeros(1, 0)},
        {"a": torch.tensor(1.0)},
        {"a": one},
        {"a": one[None]},
        {"a": two},
        {"a": one, "b": two},
        {"a": two, "b": one},
        {"ab": torch.cat([one, two])},
        {"a": torch.cat([one, two])},
        {"a": torch.cat([one, two])[:, None]},
        {"a": one.double()},
        {"a": one.view(torch.int32)},
        {"a": torch.tensor([0.0])},
        {"a": torch.tensor([-0.0])},
        {"a": torch.tensor([0])},
        {"a": torch.tensor([False])},
    ]
    assert len({digest(tensors) for tensors in different}) == len(different)


def test_what_was_signed_is_accepted_and_the_same_bits_in_another_layout_too():
    signature = sign(KEY, CLAIM, NUMBERS, some_tensors())
    verify(KEY.public_key(), CLAIM, NUMBERS, some_tensors(), signature)
    verify(KEY.public_key(), CLAIM, dict(reversed(NUMBERS.items())), dict(reversed(some_tensors().items())), signature)


def test_a_flip_of_any_bit_of_any_tensor_is_rejected():
    tensors, flips = some_tensors(), 0
    signature = sign(KEY, CLAIM, NUMBERS, tensors)
    for name, tensor in tensors.items():
        for bit in range(8 * tensor.numel() * tensor.element_size()):
            if name == "slots/mask" and bit % 8:
                continue  # a truth value has one bit
            assert_rejected(tensors=flipped(tensors, name, bit), signature=signature)
            flips += 1
    assert flips == 8 * (4 * 12 + 2 * 3 + 8) + 2


def test_a_flip_of_any_bit_of_a_number_is_rejected():
    signature = sign(KEY, CLAIM, NUMBERS, some_tensors())
    for bit in range(64):
        bits = struct.unpack("<Q", struct.pack("<d", NUMBERS["mass"]))[0] ^ 1 << bit
        assert_rejected(
            numbers=NUMBERS | {"mass": struct.unpack("<d", struct.pack("<Q", bits))[0]}, signature=signature
        )
        assert_rejected(numbers=NUMBERS | {"rows": NUMBERS["rows"] ^ 1 << bit}, signature=signature)


def test_a_flip_of_any_bit_of_the_signature_is_rejected():
    signature = sign(KEY, CLAIM, NUMBERS, some_tensors())
    for bit in range(8 * len(signature)):
        bent = bytearray(signature)
        bent[bit // 8] ^= 1 << bit % 8
        assert_rejected(signature=bytes(bent))
    for bent in (b"", signature[:-1], signature + b"\0"):
        assert_rejected(signature=bent)


def test_another_name_number_or_claim_is_rejected():
    signature = sign(KEY, CLAIM, NUMBERS, some_tensors())
    for field in fields(Claim):
        assert_rejected(claim=replace(CLAIM, **{field.name: 4 if field.name == "round" else "x"}), signature=signature)
    shifted = replace(CLAIM, nonce=CLAIM.nonce + CLAIM.model[:1], model=CLAIM.model[1:])
    assert_rejected(claim=shifted, signature=signature)
    for numbers in ({}, NUMBERS | {"more": 1}, NUMBERS | {"steps": 12.0}, {"steps": 12, "mass": 46.25, "row": 96}):
        assert_rejected(numbers=numbers, signature=signature)
    tensors = some_tensors()
    renamed = {("delta/v" if name == "delta/w" else name): tensor for name, tensor in tensors.items()}
    assert_rejected(tensors=renamed, signature=signature)


def test_another_key_is_rejected():
    signature = sign(generate_private_key(SECP384R1()), CLAIM, NUMBERS, some_tensors())
    assert_rejected(signature=signature)


def test_a_signature_made_for_another_purpose_is_rejected(monkeypatch):
    monkeypatch.setattr(signing, "UPDATE_DOMAIN", "moonfed update v0")
    signature = sign(KEY, CLAIM, NUMBERS, some_tensors())
    monkeypatch.undo()
    assert_rejected(signature=signature)


def test_a_rejection_is_one_line_of_json_whatever_name_the_site_has():
    line = Rejection("wrong sender", 'a "name"\nof two lines', "x\n" * 500, 7).to_json()
    assert "\n" not in line
    said = json.loads(line)
    assert (said["round"], said["reason"]) == (7, "wrong sender")
    assert said["refused"] == ("x?" * 500)[:120], "no control characters"
