"""Convolutions of frozen lanes with few channels: an operation of our own, since cuDNN copies around what is small."""

import importlib.util
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

THERE = importlib.util.find_spec("triton") is not None  # comes with torch where it comes with CUDA
MOST = 160, 64  # numbers in a patch, and channels given: with more, cuDNN is faster
BLOCK = 128  # places of the output that one program computes


@torch.library.custom_op("moonfed::frozen_conv", mutates_args=())
def frozen_conv(x: Tensor, w: Tensor, b: Tensor, stride: int, pad_high: int, pad_wide: int) -> Tensor:
    """Convolve [lane, batch, in, height, width] with [lane, out, in, height, width]; nothing flows back."""
    made = [F.conv2d(*lane, stride, (pad_high, pad_wide)) for lane in zip(x, w, b, strict=True)]
    return torch.stack(made)


@frozen_conv.register_fake
def _(x: Tensor, w: Tensor, b: Tensor, stride: int, pad_high: int, pad_wide: int) -> Tensor:
    return x.new_empty(_shape(x, w, stride, pad_high, pad_wide))


@frozen_conv.register_kernel("cuda")
def _(x: Tensor, w: Tensor, b: Tensor, stride: int, pad_high: int, pad_wide: int) -> Tensor:
    lanes, batch, out, down, across = _shape(x, w, stride, pad_high, pad_wide)
    made = torch.empty(lanes, batch, out, down, across, dtype=x.dtype, device=x.device)
    w, b = w.contiguous(), b.contiguous()
    places = batch * down * across
    with torch.cuda.device(x.device):
        _kernel()[(-(-places // BLOCK), lanes)](
            x, w, b, made, *x.stride(), x.shape[3], x.shape[4], places, down, across, pad_high, pad_wide,
            IN=x.shape[2], OUT=out, HIGH=w.shape[3], WIDE=w.shape[4], STRIDE=stride,
            WIDTH=max(16, 1 << (out - 1).bit_length()), BLOCK=BLOCK, PART=16, num_warps=4,
        )  # fmt: skip
    return made


def _shape(x: Tensor, w: Tensor, stride: int, pad_high: int, pad_wide: int) -> tuple[int, int, int, int, int]:
    down = (x.shape[3] + 2 * pad_high - w.shape[3]) // stride + 1
    across = (x.shape[4] + 2 * pad_wide - w.shape[4]) // stride + 1
    return x.shape[0], x.shape[1], w.shape[1], down, across


@cache
def _kernel() -> Any:
    """Load the kernel when it is first needed: triton is not everywhere."""
    from moonfed.engines.cuda.triton_conv import convolve

    return convolve
