"""Numeric precision on GPUs: fp32, or factors of 10 bits in tf32 and fp16; sums always keep 32 bits."""

import copy
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from moonfed.engines.base import Nets
from moonfed.engines.cuda.fp16_conv import TensorCoreConvolutions
from moonfed.engines.devices import Device, is_gpu

PRECISIONS = ("fp32", "tf32", "fp16")


def pick_precision(name: str, device: Device) -> str:
    """Turn a precision setting into a precision; a CPU has only fp32; auto is tf32."""
    if not is_gpu(device):
        return "fp32"
    return "tf32" if name == "auto" else name


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


def with_precision(nets: Nets, precision: str, sample: Tensor) -> Nets:
    """Return the networks as an engine of a precision uses them; the given ones are not changed."""
    if precision == "fp32":
        return nets
    channels_last = _accepts_channels_last(nets.inference, sample)
    networks = (_for_tensor_cores(net, precision == "fp16", channels_last) for net in (nets.training, nets.inference))
    return nets._replace(**dict(zip(("training", "inference"), networks, strict=True)))


@torch.no_grad()
def _accepts_channels_last(net: nn.Module, sample: Tensor) -> bool:
    """Try a network on rows with channels innermost: one that calls view on them may refuse."""
    if sample.dim() != 4:
        return False
    try:
        net(sample.contiguous(memory_format=torch.channels_last))
    except RuntimeError:
        return False
    return True


def _for_tensor_cores(net: nn.Module, fp16: bool, channels_last: bool) -> nn.Module:
    """Copy a network; its convolutions, on weights that stay in 32 bits, have the layout that tensor cores read.

    The copy is of a class of its own: a function as its forward would, in a copy of the copy, still run this one.
    """
    net = copy.deepcopy(net)
    kind = type(net)

    def forward(self: nn.Module, x: Tensor) -> Any:
        with TensorCoreConvolutions(fp16):
            return kind.forward(self, x.contiguous(memory_format=torch.channels_last) if channels_last else x)

    net.__class__ = type(kind.__name__, (kind,), {"forward": forward})
    return net


def overflow_hint(precision: str) -> str:
    """Return advice for a run whose values are no longer finite; empty where the precision is not the cause."""
    return "; fp16 ends at 65,504, --precision tf32 does not" if precision == "fp16" else ""
