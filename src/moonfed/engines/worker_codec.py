"""The results of jobs as bytes, for the way from one process to another on the same machine."""

import json
from typing import Any

import torch
from torch import Tensor

from moonfed.core.files import pack, unpack
from moonfed.core.tree import under
from moonfed.core.types import Tensors, Upload
from moonfed.engines.base import JobResult

HEAD_BYTES = 8


def encode_results(results: dict[int, JobResult]) -> bytes:
    """Write results by place; tensors keep their order."""
    heads: list[dict[str, Any]] = []
    bodies: list[bytes] = []
    for place, result in results.items():
        flat = _flatten(result)
        tensors = [(name, str(t.dtype).removeprefix("torch."), list(t.shape)) for name, t in flat.items()]
        upload = result.upload
        numbers = {"steps": upload.steps, "effective_steps": upload.effective_steps, "lr": upload.lr}
        heads.append({"place": place, "tensors": tensors, "gamma": result.gamma, "seconds": result.seconds} | numbers)
        bodies += [t.contiguous().numpy().tobytes() for t in flat.values()]
    head = json.dumps(heads).encode()
    return b"".join([len(head).to_bytes(HEAD_BYTES, "little"), head, *bodies])


def decode_results(content: bytes) -> dict[int, JobResult]:
    """Read results by place; none from a process that wrote nothing, or not all."""
    size = HEAD_BYTES + int.from_bytes(content[:HEAD_BYTES], "little")
    if len(content) <= size:
        return {}
    buffer, at = bytearray(content), size
    results: dict[int, JobResult] = {}
    for head in json.loads(content[HEAD_BYTES:size]):
        flat: Tensors = {}
        for name, dtype, shape in head["tensors"]:
            flat[name], at = _read_tensor(buffer, at, getattr(torch, dtype), shape)
        results[head["place"]] = _rebuild(flat, head)
    return results if at == len(content) else {}


def _flatten(result: JobResult) -> Tensors:
    upload = result.upload
    named = {"delta": upload.delta, "buffers": upload.buffers, "losses": result.losses}
    named |= {"slots": pack(upload.slots), "memory": pack(result.memory)}
    return {f"{part}/{name}": t for part, tensors in named.items() for name, t in tensors.items()}


def _rebuild(flat: Tensors, head: dict[str, Any]) -> JobResult:
    slots, memory = unpack(under("slots", flat)), unpack(under("memory", flat))
    numbers = head["steps"], head["effective_steps"], head["lr"]
    upload = Upload(under("delta", flat), under("buffers", flat), slots, *numbers)
    return JobResult(upload, memory, under("losses", flat), head["gamma"], head["seconds"])


def _read_tensor(buffer: bytearray, at: int, dtype: torch.dtype, shape: list[int]) -> tuple[Tensor, int]:
    count = torch.Size(shape).numel()
    end = at + count * dtype.itemsize
    if not count or end > len(buffer):
        return torch.empty(shape, dtype=dtype), end
    return torch.frombuffer(buffer, dtype=dtype, count=count, offset=at).reshape(shape).clone(), end
