"""Convolutions without gradients of lanes with few channels, for which cuDNN spends its time on copies."""

import importlib.util
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

HAS_TRITON = importlib.util.find_spec("triton") is not None  # CUDA builds of torch install it
MAX_PATCH_VALUES, MAX_OUT_CHANNELS = 160, 64  # with more, cuDNN is faster
BLOCK_POSITIONS = 128  # output positions that one program of the kernel computes


@torch.library.custom_op("moonfed::inference_conv", mutates_args=())
def inference_conv(x: Tensor, w: Tensor, b: Tensor, stride: int, pad_height: int, pad_width: int) -> Tensor:
    """Convolve [lane, batch, in, height, width] with [lane, out, in, height, width]; no gradients."""
    outs = [F.conv2d(*lane, stride, (pad_height, pad_width)) for lane in zip(x, w, b, strict=True)]
    return torch.stack(outs)


@inference_conv.register_fake  # pyright: ignore[reportUnknownMemberType]
def _(x: Tensor, w: Tensor, b: Tensor, stride: int, pad_height: int, pad_width: int) -> Tensor:
    return x.new_empty(_out_shape(x, w, stride, pad_height, pad_width))


@inference_conv.register_kernel("cuda")  # pyright: ignore[reportUnknownMemberType, reportUntypedFunctionDecorator]
def _(x: Tensor, w: Tensor, b: Tensor, stride: int, pad_height: int, pad_width: int) -> Tensor:
    lanes, batch, channels, height, width = _out_shape(x, w, stride, pad_height, pad_width)
    out = torch.empty(lanes, batch, channels, height, width, dtype=x.dtype, device=x.device)
    w, b = w.contiguous(), b.contiguous()
    positions = batch * height * width
    with torch.cuda.device(x.device):
        _kernel()[(-(-positions // BLOCK_POSITIONS), lanes)](
            x, w, b, out, *x.stride(), x.shape[3], x.shape[4], positions, height, width, pad_height, pad_width,
            IN=x.shape[2], OUT=channels, KERNEL_HEIGHT=w.shape[3], KERNEL_WIDTH=w.shape[4], STRIDE=stride,
            OUT_PADDED=max(16, 1 << (channels - 1).bit_length()), BLOCK=BLOCK_POSITIONS, PART=16, num_warps=4,
        )  # fmt: skip
    return out


def _out_shape(x: Tensor, w: Tensor, stride: int, pad_height: int, pad_width: int) -> tuple[int, int, int, int, int]:
    height = (x.shape[3] + 2 * pad_height - w.shape[3]) // stride + 1
    width = (x.shape[4] + 2 * pad_width - w.shape[4]) // stride + 1
    return x.shape[0], x.shape[1], w.shape[1], height, width


@cache
def _kernel() -> Any:
    """Import the kernel when it is first needed: triton is not installed everywhere."""
    from moonfed.engines.cuda import triton_conv

    kernel: Any = triton_conv.convolve  # pyright: ignore
    return kernel
