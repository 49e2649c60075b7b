"""Runs convolutions, poolings and group norms of stacked lanes fast, whatever network calls them.

vmap passes a convolution its lanes as one more axis and would copy them into place, layer after layer. Here the lanes
of an image lie beside its channels in memory from the first convolution on. A layer of all lanes is then one grouped
convolution, and little is copied. CPU kernels are fast in the order [batch, height, width, lane, channel], those
for AVX2 with a fourth channel beside three. GPU kernels are fast in the order [batch, lane, channel, height, width],
with channels padded to multiples of 4 and 8.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import Function
from torch.func import vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from moonfed.engines.cuda.fp16_conv import convolution_backward, fp16_conv, pair, sum_per_channel
from moonfed.engines.cuda.inference_conv import HAS_TRITON, MAX_OUT_CHANNELS, MAX_PATCH_VALUES, inference_conv


class LaneLayout(NamedTuple):
    """How lanes are laid out in memory, and how they are convolved."""

    channels_last: bool
    pad_in: int = 1  # a convolution's input and output channels are padded with zeros to a multiple of these
    pad_out: int = 1
    flipped_backward: bool = False  # whether the gradient of a convolution's input is computed as a forward convolution
    fp16: bool = False  # whether convolutions run in fp16
    pad_three: bool = False  # whether three input channels get a fourth one of zeros
    batch_last: bool = (
        False  # whether the images of a batch lie side by side, value by value, as fused blocks read them
    )


CPU_LAYOUT = LaneLayout(channels_last=True)
# oneDNN's AVX2 kernels take four times as long for the weight gradients of groups of three channels as of four.
AVX2_LAYOUT = LaneLayout(channels_last=True, pad_three=True)
FP32_LAYOUT = LaneLayout(channels_last=False)
TF32_LAYOUT = LaneLayout(channels_last=False, pad_in=4, pad_out=8, flipped_backward=True)
FP16_LAYOUT = LaneLayout(channels_last=False, pad_in=4, pad_out=8, fp16=True)
CPU_LAYOUTS = (CPU_LAYOUT, AVX2_LAYOUT)
GPU_LAYOUTS = {"fp32": FP32_LAYOUT, "tf32": TF32_LAYOUT, "fp16": FP16_LAYOUT}


def cpu_layout() -> LaneLayout:
    """Return the layout for this machine's processor."""
    return AVX2_LAYOUT if torch.backends.cpu.get_cpu_capability() == "AVX2" else CPU_LAYOUT


class LaneOp(Function):
    """An operation with its own implementation for stacked lanes."""

    @staticmethod
    def forward(*args: Any) -> Tensor:
        """Run the operation on one lane: args are the functions of one lane and of all, and the tensors."""
        of_one, _, *tensors = args
        return of_one(*tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Refuse gradients: the engine differentiates outside of vmap."""
        raise NotImplementedError("gradients are computed outside of vmap")

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> tuple[Tensor, int]:
        """Run the operation on all lanes."""
        _, of_lanes, *tensors = args
        return of_lanes(info.batch_size, in_dims[2:], *tensors), 1


lane_op: Callable[..., Tensor] = LaneOp.apply  # pyright: ignore


class StackedOps(TorchFunctionMode):
    """Replaces the operations that any module calls under vmap with those of a layout."""

    def __init__(self, layout: LaneLayout) -> None:
        super().__init__()
        self.layout = layout

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        stacked = _OPERATIONS.get(func)
        call = stacked(self.layout, *args, **kwargs) if stacked else None
        if call is None and func is F.group_norm:  # vmap's batching rule ignores the order of its input in memory
            args = (args[0].contiguous(), *args[1:])
        return lane_op(*call) if call else func(*args, **kwargs)

    def vectorize(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Turn a function of one lane into a function of stacked lanes."""
        of_lanes = vmap(function)

        def run(*trees: Any) -> Any:
            with self, _math_attention() if self.layout in CPU_LAYOUTS else nullcontext():
                return of_lanes(*trees)

        return run


def _math_attention() -> AbstractContextManager[Any]:
    """Switch off fused attention, which has no batching rule on a CPU."""
    return sdpa_kernel(SDPBackend.MATH)  # pyright: ignore[reportUnknownVariableType]


def lanes_first(t: Tensor, dim: int | None, lanes: int) -> Tensor:
    """Move the lane axis to the front; a tensor that all lanes share is expanded."""
    return t.expand(lanes, *t.shape) if dim is None else t.movedim(dim, 0)


def merge_lanes(layout: LaneLayout, x: Tensor, pad: int = 0) -> Tensor:
    """Turn [lane, batch, channel, height, width] into [batch, lane * channel, height, width]; a view where possible.

    Each lane gets pad more channels of zeros.
    """
    if layout.channels_last:
        x = x.permute(1, 3, 4, 0, 2)  # as it lies in memory
        return (F.pad(x, (0, pad)) if pad else x).flatten(3).permute(0, 3, 1, 2)
    return (F.pad(x, (0, 0, 0, 0, 0, pad)) if pad else x).transpose(0, 1).flatten(1, 2)


def split_lanes(x: Tensor, lanes: int) -> Tensor:
    """Turn [batch, lane * channel, height, width] into [batch, lane, channel, height, width]."""
    return torch.unflatten(x, 1, (lanes, -1))


class ConvSettings(NamedTuple):
    """The arguments of a convolution as its module passes them."""

    stride: Any
    padding: Any  # or a word, such as "same"
    dilation: Any
    groups: int


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
    channels, needs_grad, own = w.shape[1], x.requires_grad, w.shape[2]
    if settings.groups == 1:
        w, b = _pad_channels(layout, w, b)
    pad, w = w.shape[2] - own, w.flatten(0, 1)
    if layout.channels_last:
        w = w.contiguous(memory_format=torch.channels_last)
    b = None if b is None else b.flatten()
    x = merge_lanes(layout, x, pad)
    out = _grouped_conv(layout, settings._replace(groups=settings.groups * lanes), x, w, b, needs_grad)
    return split_lanes(out, lanes)[:, :, :channels]


def _pad_channels(layout: LaneLayout, w: Tensor, b: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Pad input and output channels of weights with zeros to the multiples that a layout needs."""
    pad_in, pad_out = -w.shape[2] % layout.pad_in, -w.shape[1] % layout.pad_out
    if layout.pad_three and w.shape[2] == 3:
        pad_in = 1
    if pad_in or pad_out:
        w = F.pad(w, (0, 0, 0, 0, 0, pad_in, 0, pad_out))
        b = None if b is None else F.pad(b, (0, pad_out))
    return w, b


def _grouped_conv(
    layout: LaneLayout, settings: ConvSettings, x: Tensor, w: Tensor, b: Tensor | None, needs_grad: bool
) -> Tensor:
    """Convolve merged lanes with the fastest implementation of a layout."""
    if not (layout.fp16 or layout.flipped_backward) or isinstance(settings.padding, str):
        return F.conv2d(x, w, b, *settings)
    stride, padding, dilation = (pair(size) for size in settings[:3])
    if layout.fp16:
        return fp16_conv(x, w, b, stride, padding, dilation, settings.groups)
    within = padding[0] < w.shape[2] and padding[1] < w.shape[3]
    if needs_grad and stride == dilation == (1, 1) and within:
        return flipped_conv(x, w, b, padding, settings.groups)
    return F.conv2d(x, w, b, *settings)


def _inference_lanes(settings: ConvSettings, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor | None:
    """Convolve lanes without gradients with our own fp16 kernel, if they have few channels."""
    if isinstance(settings.padding, str):
        return None
    stride, padding, dilation = (pair(size) for size in settings[:3])
    small = w[0, 0].numel() <= MAX_PATCH_VALUES and w.shape[1] <= MAX_OUT_CHANNELS
    simple = settings.groups == 1 and dilation == (1, 1) and stride[0] == stride[1]
    if not small or not simple:
        return None
    b = w.new_zeros(w.shape[:2]) if b is None else b
    out = inference_conv(x.half(), w.half(), b.half(), stride[0], *padding)
    return out.to(x.dtype).transpose(0, 1)  # [batch, lane, out, height, width]


def _pool(pool: Callable[..., Tensor]) -> Callable[..., tuple[Any, ...] | None]:
    def stacked_pool(
        layout: LaneLayout, input: Tensor, *args: Any, return_indices: bool = False, **kwargs: Any
    ) -> tuple[Any, ...] | None:
        if input.dim() != 4 or return_indices:
            return None

        def of_one(x: Tensor) -> Tensor:
            return pool(x, *args, **kwargs)

        def of_lanes(lanes: int, dims: Any, x: Tensor) -> Tensor:
            return split_lanes(of_one(merge_lanes(layout, lanes_first(x, dims[0], lanes))), lanes)

        return of_one, of_lanes, input

    return stacked_pool


def _group_norm(
    layout: LaneLayout,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Any, ...] | None:
    if input.dim() != 4 or weight is None or bias is None:
        return None

    def of_one(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.group_norm(x, num_groups, w, b, eps)

    def of_lanes(lanes: int, dims: Any, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        w, b = (lanes_first(t, dim, lanes).flatten() for t, dim in ((w, dims[1]), (b, dims[2])))
        x = merge_lanes(layout, lanes_first(x, dims[0], lanes))
        return split_lanes(F.group_norm(x, num_groups * lanes, w, b, eps), lanes)

    return of_one, of_lanes, input, weight, bias


_OPERATIONS: dict[Any, Callable[..., tuple[Any, ...] | None]] = {
    torch.conv2d: stacked_conv2d,
    F.group_norm: _group_norm,  # vmap's own refuses inputs in channels-last order
    **{pool: _pool(pool) for pool in (F.max_pool2d, F.avg_pool2d, F.adaptive_avg_pool2d)},
}
