"""Numeric precision on GPUs: fp32, or factors of 10 bits in tf32 and fp16; sums always keep 32 bits."""

import copy
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from moonfed.engines.base import Nets
from moonfed.engines.cuda.fp16_conv import Fp16Convolutions
from moonfed.engines.devices import Device, is_gpu

PRECISIONS = ("fp32", "tf32", "fp16")
FP16_ENCODERS = ("cnn",)  # encoders that lost less than half a point against fp32 over 100 rounds: results/speed.md


def pick_precision(name: str, device: Device, encoder: str) -> str:
    """Turn a precision setting into a precision; a CPU has only fp32; auto is fp16 for tested encoders, else tf32."""
    if not is_gpu(device):
        return "fp32"
    fastest = "fp16" if encoder in FP16_ENCODERS else "tf32"
    return fastest if name == "auto" else name


@contextmanager
def numeric_precision(precision: str) -> Generator[None]:
    """Set how a GPU computes convolutions and matrix products of 32-bit tensors; restore it afterwards."""
    matmul: Any = torch.backends.cuda.matmul
    cudnn: Any = torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark
    matmul.allow_tf32 = cudnn.allow_tf32 = precision != "fp32"
    cudnn.benchmark = True  # shapes are the same in every step: the fastest kernel is searched for once
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark = before


def with_precision(nets: Nets, precision: str) -> Nets:
    """Return the networks as an engine of a precision uses them; the given ones are not changed."""
    if precision != "fp16":
        return nets
    training, inference = (_with_fp16_convolutions(net) for net in (nets.training, nets.inference))
    return nets._replace(training=training, inference=inference)


def _with_fp16_convolutions(net: nn.Module) -> nn.Module:
    """Copy a network; the copy's convolutions run in fp16 on weights that stay in 32 bits."""
    net = copy.deepcopy(net)
    forward = net.forward

    def fp16_forward(x: Tensor) -> Any:
        with Fp16Convolutions():
            return forward(x)

    net.forward = fp16_forward
    return net


def overflow_hint(precision: str) -> str:
    """Return advice for a run whose values are no longer finite; empty where the precision is not the cause."""
    return "; fp16 ends at 65,504, --precision tf32 does not" if precision == "fp16" else ""
