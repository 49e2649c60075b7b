"""How exactly a GPU multiplies: fp32 as written, tf32 and fp16 with factors of 10 bits, bf16 of 7; sums keep 32."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from moonfed.core.tree import tree_map
from moonfed.engines.base import Nets
from moonfed.engines.cuda.fp16_conv import HalfConvolutions

PRECISIONS = ("fp32", "tf32", "fp16", "bf16")


@contextmanager
def numerics(precision: str) -> Iterator[None]:
    """Set how convolutions and matrix products of 32-bit numbers are computed, and put it back."""
    matmul: Any = torch.backends.cuda.matmul
    cudnn: Any = torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark
    matmul.allow_tf32 = cudnn.allow_tf32 = precision != "fp32"
    cudnn.benchmark = True  # shapes do not change from step to step: the fastest kernel is looked for once
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark = before


def in_precision(nets: Nets, precision: str) -> Nets:
    """Take the networks as an engine of a precision uses them; those given stay as they are."""
    small = {"fp16": in_fp16, "bf16": in_bf16}.get(precision)
    return nets if small is None else Nets(*(small(copy.deepcopy(net)) for net in nets))


def in_fp16(net: nn.Module) -> nn.Module:
    """Let a network's convolutions work in fp16 on weights that stay in 32 bits."""
    forward = net.forward

    def half(x: torch.Tensor) -> Any:
        with HalfConvolutions():
            return forward(x)

    net.forward = half  # type: ignore[method-assign]
    return net


def in_bf16(net: nn.Module) -> nn.Module:
    """Let a network's layers work in bf16 on weights that stay in 32 bits; what it gives is 32-bit again."""
    forward = net.forward

    def half(x: torch.Tensor) -> Any:
        with torch.autocast(x.device.type, torch.bfloat16, cache_enabled=False):
            out = forward(x)
        return tree_map(lambda t: t.to(x.dtype), out)

    net.forward = half  # type: ignore[method-assign]
    return net
