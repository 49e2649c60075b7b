"""Equal runs leave equal files: byte for byte, wherever no file records how long something took."""

import json
from pathlib import Path

import pytest
import torch
from commands import SMALL, contents, moonfed
from safetensors import safe_open

from moonfed.core.files import read_tensors, tensor_bytes, write_tensors

TIMED = {"rounds.jsonl", "checkpoint/manifest.json", "checkpoint/manifest-before.json"}  # seconds, and their digests


@pytest.mark.parametrize("algorithm", ["moon", "scaffold", "solo"])
def test_two_equal_runs_leave_the_same_bytes(algorithm: str, place: Path) -> None:
    for name in ("first", "second"):
        assert moonfed("run", *SMALL, "--algorithm", algorithm, "--out", name).code == 0
    first, second = (contents(place / name) for name in ("first", "second"))
    assert list(first) == list(second)
    assert {name for name in first if first[name] != second[name]} <= TIMED
    assert first["final.safetensors"]


def test_the_facts_of_a_file_are_sorted_and_read_as_before(tmp_path: Path) -> None:
    tensors = {"b": torch.arange(3.0), "a.é": torch.ones(2, dtype=torch.int64), "c": torch.tensor(2.0)}
    facts = {"rounds": "3", "identity": "x", "words": 'of "all" kinds:\né/'}
    assert len({tensor_bytes("t", tensors, dict(reversed(facts.items()))) for _ in range(20)}) == 1
    path = tmp_path / "t.safetensors"
    write_tensors(path, tensors, **facts)
    found, read = read_tensors(path)
    assert read == facts
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)
    with safe_open(str(path), framework="numpy") as file:  # for any reader of the format
        assert {k: v for k, v in file.metadata().items() if k != "sha256"} == facts
    head = path.read_bytes()
    size = int.from_bytes(head[:8], "little")
    assert size % 8 == 0
    assert list(json.loads(head[8 : 8 + size])["__metadata__"]) == ["identity", "rounds", "sha256", "words"]
