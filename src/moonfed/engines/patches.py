"""Patches of pictures as rows of a matrix: with them a convolution of few channels is a matrix product."""

import importlib.util
from typing import Any

import torch
from torch import Tensor

THERE = importlib.util.find_spec("triton") is not None  # comes with torch where it comes with CUDA
_kernels: dict[str, Any] = {}


@torch.library.custom_op("moonfed::patches", mutates_args=())
def patches(x: Tensor, high: int, wide: int, stride: int, fill: int) -> Tensor:
    """Turn [lane, batch, channel, height, width] into [lane, batch * height * width, patch], with zeros behind."""
    seen = x.unfold(3, high, stride).unfold(4, wide, stride)
    rows = seen.permute(0, 1, 3, 4, 2, 5, 6).flatten(4).flatten(1, 3)
    return torch.nn.functional.pad(rows, (0, fill)).contiguous()


@patches.register_fake
def _(x: Tensor, high: int, wide: int, stride: int, fill: int) -> Tensor:
    lanes, batch, channels, height, width = x.shape
    places = batch * ((height - high) // stride + 1) * ((width - wide) // stride + 1)
    return x.new_empty(lanes, places, channels * high * wide + fill)


@patches.register_kernel("cuda")
def _(x: Tensor, high: int, wide: int, stride: int, fill: int) -> Tensor:
    lanes, batch, channels, height, width = x.shape
    down, across = (height - high) // stride + 1, (width - wide) // stride + 1
    places, size = batch * down * across, channels * high * wide + fill
    made = torch.empty(lanes, places, size, dtype=x.dtype, device=x.device)
    block = 64
    grid = (-(-places // block), lanes)
    with torch.cuda.device(x.device):
        _kernel()[grid](
            x, made, *x.stride(), places, down, across, channels * high * wide, size,
            HIGH=high, WIDE=wide, STRIDE=stride, BLOCK=block, SIZE=1 << (size - 1).bit_length(), num_warps=4,
        )  # fmt: skip
    return made


def _kernel() -> Any:
    """Make the kernel when it is first needed: triton is not everywhere."""
    if "patches" not in _kernels:
        from moonfed.engines.patches_triton import copy_patches

        _kernels["patches"] = copy_patches
    return _kernels["patches"]
