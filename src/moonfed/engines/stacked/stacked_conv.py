"""Two-dimensional convolutions of stacked lanes: one grouped convolution for all of them."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import Function

from moonfed.engines.cuda.fp16_conv import convolution_backward, fp16_conv, pair, sum_per_channel
from moonfed.engines.cuda.inference_conv import HAS_TRITON, MAX_OUT_CHANNELS, MAX_PATCH_VALUES, inference_conv
from moonfed.engines.stacked.layout import LaneLayout, lanes_first, merge_lanes, split_lanes


class ConvSettings(NamedTuple):
    """The arguments of a convolution as its module passes them."""

    stride: Any
    padding: Any
    dilation: Any
    groups: int

    @property
    def pairs(self) -> tuple[tuple[int, int], tuple[int, int] | None, tuple[int, int]]:
        """Stride, padding and dilation by height and width; a padding in words, such as "same", is None."""
        padding = None if isinstance(self.padding, str) else pair(self.padding)
        return pair(self.stride), padding, pair(self.dilation)


class FlippedConv(Function):
    """A grouped convolution whose input gradient is a convolution with the flipped weights.

    It is the same sum. cuDNN computes it with one TF32 kernel, whereas its own kernel for it works group by group.
    """

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Tensor:
        """Convolve with stride and dilation 1."""
        x, w, b, padding, groups = args
        ctx.save_for_backward(x, w)
        ctx.padding, ctx.groups, ctx.has_bias = padding, groups, b is not None
        return F.conv2d(x, w, b, 1, padding, 1, groups)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        """Return the gradients of input, weights and bias."""
        (grad,) = grad_outputs
        x, w = ctx.saved_tensors
        flipped = w.unflatten(0, (ctx.groups, -1)).transpose(1, 2).flip(-2, -1).flatten(0, 1)
        padding = [size - 1 - own for size, own in zip(w.shape[2:], ctx.padding, strict=True)]
        grad_x = F.conv2d(grad, flipped, None, 1, padding, 1, ctx.groups)
        wanted = [False, True, False]
        _, grad_w, _ = convolution_backward(grad, x, w, (1, 1), ctx.padding, (1, 1), ctx.groups, wanted)
        return grad_x, grad_w, sum_per_channel(grad) if ctx.has_bias else None, None, None


flipped_conv: Callable[..., Tensor] = FlippedConv.apply  # pyright: ignore


def stacked_conv2d(
    layout: LaneLayout,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> tuple[Any, ...] | None:
    """Return what torch.conv2d does to one lane and to stacked lanes, and its tensors."""
    if input.dim() != 4:
        return None
    settings = ConvSettings(stride, padding, dilation, groups)
    return partial(_conv_one, settings), partial(_conv_lanes, layout, settings), input, weight, bias


def _conv_one(settings: ConvSettings, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
    return F.conv2d(x, w, b, *settings)


def _conv_lanes(
    layout: LaneLayout, settings: ConvSettings, lanes: int, dims: Any, x: Tensor, w: Tensor, b: Tensor | None
) -> Tensor:
    """Convolve all lanes; returns [batch, lane, out, height, width]."""
    x, w = lanes_first(x, dims[0], lanes), lanes_first(w, dims[1], lanes)  # [lane, batch | out, in, height, width]
    b = None if b is None else lanes_first(b, dims[2], lanes)
    inference = not (x.requires_grad or w.requires_grad)
    if layout.fp16 and HAS_TRITON and inference and (out := _inference_lanes(settings, x, w, b)) is not None:
        return out
    channels, needs_grad = w.shape[1], x.requires_grad
    if settings.groups == 1:
        x, w, b = _pad_channels(layout, x, w, b)
    w = w.flatten(0, 1)
    if layout.channels_last:
        w = w.contiguous(memory_format=torch.channels_last)
    b = None if b is None else b.flatten()
    x = merge_lanes(layout, x)
    out = _grouped_conv(layout, settings._replace(groups=settings.groups * lanes), x, w, b, needs_grad)
    return split_lanes(out, lanes)[:, :, :channels]


def _pad_channels(layout: LaneLayout, x: Tensor, w: Tensor, b: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Pad input and output channels with zeros to the multiples that a layout needs."""
    pad_in, pad_out = -w.shape[2] % layout.pad_in, -w.shape[1] % layout.pad_out
    if pad_in:
        x = F.pad(x, (0, 0, 0, 0, 0, pad_in))
    if pad_in or pad_out:
        w = F.pad(w, (0, 0, 0, 0, 0, pad_in, 0, pad_out))
        b = None if b is None else F.pad(b, (0, pad_out))
    return x, w, b


def _grouped_conv(
    layout: LaneLayout, settings: ConvSettings, x: Tensor, w: Tensor, b: Tensor | None, needs_grad: bool
) -> Tensor:
    """Convolve merged lanes with the fastest implementation of a layout."""
    stride, padding, dilation = settings.pairs
    if padding is not None:
        if layout.fp16:
            return fp16_conv(x, w, b, stride, padding, dilation, settings.groups)
        within = padding[0] < w.shape[2] and padding[1] < w.shape[3]
        if layout.flipped_backward and needs_grad and stride == dilation == (1, 1) and within:
            return flipped_conv(x, w, b, padding, settings.groups)
    return F.conv2d(x, w, b, *settings)


def _inference_lanes(settings: ConvSettings, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor | None:
    """Convolve lanes without gradients with our own fp16 kernel, if they have few channels."""
    stride, padding, dilation = settings.pairs
    small = w[0, 0].numel() <= MAX_PATCH_VALUES and w.shape[1] <= MAX_OUT_CHANNELS
    simple = settings.groups == 1 and dilation == (1, 1) and stride[0] == stride[1]
    if not small or not simple or padding is None:
        return None
    b = w.new_zeros(w.shape[:2]) if b is None else b
    out = inference_conv(x.half(), w.half(), b.half(), stride[0], *padding)
    return out.to(x.dtype).transpose(0, 1)  # [batch, lane, out, height, width]
