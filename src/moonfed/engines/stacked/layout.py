"""Lanes laid side by side as channels: how convolutions and poolings of a stack run fast, whatever the net.

vmap hands a convolution its lanes as one more axis and would copy them into place, layer after layer. Here the lanes
of a picture lie beside its channels in memory from the first convolution on, so that a layer of all lanes is one
grouped convolution and little is copied. A CPU wants [batch, height, width, lane, channel]: its kernels are slow in the
other order. A GPU wants [batch, lane, channel, height, width] and, in 16 bits, channels in fours and eights.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import Function
from torch.func import vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from moonfed.engines.cuda.fp16_conv import HalfConv, by_channel, pair
from moonfed.engines.cuda.inference_conv import MOST, THERE, frozen_conv

Size = int | tuple[int, ...] | str


class Layout(NamedTuple):
    """How lanes lie in memory, and how they are convolved."""

    channels_last: bool
    pad_in: int = 1  # channels of a convolution's input and output are filled up with zeros to a multiple of these
    pad_out: int = 1
    flipped: bool = False  # whether what flows back to a convolution's input is computed as a convolution forwards
    frozen: bool = False  # whether frozen lanes have an operation of their own
    half: bool = False  # whether convolutions run in fp16


CPU = Layout(channels_last=True)
GPU = Layout(channels_last=False)
TF32 = Layout(channels_last=False, pad_in=4, pad_out=8, flipped=True)
BF16 = Layout(channels_last=False, pad_in=4, pad_out=8, frozen=THERE)
FP16 = Layout(channels_last=False, pad_in=4, pad_out=8, frozen=THERE, half=True)


class _Lanes(Function):
    """A layer that says itself what it does with lanes."""

    @staticmethod
    def forward(plain: Callable[..., Tensor], stacked: Callable[..., Tensor], *args: Any) -> Tensor:  # type: ignore[override]
        return plain(*args)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        raise NotImplementedError("gradients are taken outside of the lanes")

    @staticmethod
    def vmap(info: Any, dims: Any, plain: Any, stacked: Callable[..., Tensor], *args: Any) -> tuple[Tensor, int]:  # type: ignore[override]
        return stacked(info.batch_size, dims[2:], *args), 1


class _Flipped(Function):
    """A convolution of groups whose gradient for the input is a convolution with the weights turned round.

    It is the same sum; cuDNN does it in one kernel in TF32, where its own kernel for it works group by group.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, b: Tensor | None, edge: tuple[int, int], groups: int) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(x, w)
        ctx.edge, ctx.groups, ctx.biased = edge, groups, b is not None
        return F.conv2d(x, w, b, 1, edge, 1, groups)

    @staticmethod
    def backward(ctx: Any, made: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, w = ctx.saved_tensors
        turned = w.unflatten(0, (ctx.groups, -1)).transpose(1, 2).flip(-2, -1).flatten(0, 1)
        edge = [size - 1 - own for size, own in zip(w.shape[2:], ctx.edge, strict=True)]
        of_x = F.conv2d(made, turned, None, 1, edge, 1, ctx.groups)
        sizes = ([w.shape[0]], [1, 1], list(ctx.edge), [1, 1], False, [0, 0], ctx.groups, [False, True, False])
        of_w = torch.ops.aten.convolution_backward(made, x, w, *sizes)[1]
        return of_x, of_w, by_channel(made) if ctx.biased else None, None, None


class SideBySide(TorchFunctionMode):
    """Lets the convolutions and poolings of any module under vmap work on lanes that lie side by side."""

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.layout = layout

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        layer = _LAYERS.get(func)
        call = layer(self.layout, *args, **kwargs) if layer else None
        if call is None and func is F.group_norm:  # vmap cannot tell it in which order its input lies in memory
            args = (args[0].contiguous(), *args[1:])
        return _Lanes.apply(*call) if call else func(*args, **kwargs)

    def each(self, of_one: Callable[..., Any]) -> Callable[..., Any]:
        """Make a function of one lane one of many."""
        of_many = vmap(of_one)

        def run(*trees: Any) -> Any:
            # What a CPU has for attention in one piece does not know vmap; on a GPU it does.
            plain = sdpa_kernel(SDPBackend.MATH) if self.layout is CPU else nullcontext()
            with self, plain:
                return of_many(*trees)

        return run

    def lay(self, pixels: Tensor) -> Tensor:
        """Put pictures [lane, step, batch, channel, height, width] in the order in memory that the layers want."""
        order = (1, 2, 4, 5, 0, 3) if self.layout.channels_last else (1, 2, 0, 3, 4, 5)
        back = [order.index(axis) for axis in range(6)]
        return pixels.permute(order).contiguous().permute(back)


def _conv2d(
    layout: Layout,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> tuple[Any, ...] | None:
    if input.dim() != 4:
        return None

    def stacked(lanes: int, dims: Any, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        x, w = _spread(x, dims[0], lanes), _spread(w, dims[1], lanes)  # [lane, batch, in, h, w], [lane, out, in, h, w]
        b = None if b is None else _spread(b, dims[2], lanes)
        frozen = layout.frozen and groups == 1 and not (x.requires_grad or w.requires_grad)
        sizes = _pair(stride), _pair(padding), _pair(dilation)
        if frozen and (made := _frozen(layout, x, w, b, *sizes)) is not None:
            return made
        out, fill_in, fill_out = w.shape[1], -w.shape[2] % layout.pad_in, -w.shape[1] % layout.pad_out
        if groups > 1:
            fill_in = fill_out = 0
        if fill_in:
            x = F.pad(x, (0, 0, 0, 0, 0, fill_in))
        if fill_in or fill_out:
            w = F.pad(w, (0, 0, 0, 0, 0, fill_in, 0, fill_out))
            b = None if b is None else F.pad(b, (0, fill_out))
        w = w.flatten(0, 1)
        if layout.channels_last:
            w = w.contiguous(memory_format=torch.channels_last)
        b = None if b is None else b.flatten()
        edge = _pair(padding)
        simple = (
            _pair(stride) == _pair(dilation) == (1, 1)
            and edge is not None
            and edge[0] < w.shape[2]
            and edge[1] < w.shape[3]
        )
        if layout.half and edge is not None:
            made = HalfConv.apply(_merged(layout, x), w, b, *sizes, groups * lanes)
        elif layout.flipped and x.requires_grad and simple:
            made = _Flipped.apply(_merged(layout, x), w, b, edge, groups * lanes)
        else:
            made = F.conv2d(_merged(layout, x), w, b, stride, padding, dilation, groups * lanes)  # type: ignore[arg-type]
        return made.unflatten(1, (lanes, -1))[:, :, :out]

    def plain(x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        return F.conv2d(x, w, b, stride, padding, dilation, groups)  # type: ignore[arg-type]

    return plain, stacked, input, weight, bias


def _frozen(
    layout: Layout, x: Tensor, w: Tensor, b: Tensor | None, stride: Any, padding: Any, dilation: Any
) -> Tensor | None:
    """Convolve lanes that nothing flows back through, if they are in 16 bits and have few channels."""
    kind = x.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
    if layout.half:
        dtype = torch.float16
    few = w[0, 0].numel() <= MOST[0] and w.shape[1] <= MOST[1]
    if (
        dtype not in (torch.bfloat16, torch.float16)
        or not few
        or padding is None
        or dilation != (1, 1)
        or stride[0] != stride[1]
    ):
        return None
    b = w.new_zeros(w.shape[:2]) if b is None else b
    made = frozen_conv(x.to(dtype), w.to(dtype), b.to(dtype), stride[0], *padding)
    if layout.half:
        made = made.to(x.dtype)
    return made.transpose(0, 1)  # [batch, lane, out, height, width]


def _pair(size: Any) -> tuple[int, int] | None:
    """Read a size of a layer's height and width; a word, "same" for one, is none."""
    return None if isinstance(size, str) else pair(size)


def _pool(pool: Callable[..., Tensor]) -> Callable[..., tuple[Any, ...] | None]:
    def call(
        layout: Layout, input: Tensor, *args: Any, return_indices: bool = False, **kwargs: Any
    ) -> tuple[Any, ...] | None:
        if input.dim() != 4 or return_indices:
            return None

        def plain(x: Tensor) -> Tensor:
            return pool(x, *args, **kwargs)

        def stacked(lanes: int, dims: Any, x: Tensor) -> Tensor:
            return plain(_merged(layout, _spread(x, dims[0], lanes))).unflatten(1, (lanes, -1))

        return plain, stacked, input

    return call


def _group_norm(
    layout: Layout,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Any, ...] | None:
    if input.dim() != 4 or weight is None or bias is None:
        return None

    def plain(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.group_norm(x, num_groups, w, b, eps)

    def stacked(lanes: int, dims: Any, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        w, b = (_spread(t, dim, lanes).flatten() for t, dim in ((w, dims[1]), (b, dims[2])))
        x = _merged(layout, _spread(x, dims[0], lanes))
        return F.group_norm(x, num_groups * lanes, w, b, eps).unflatten(1, (lanes, -1))

    return plain, stacked, input, weight, bias


_LAYERS: dict[Any, Callable[..., tuple[Any, ...] | None]] = {
    torch.conv2d: _conv2d,
    F.group_norm: _group_norm,  # vmap's own refuses lanes that lie channels-last
    **{pool: _pool(pool) for pool in (F.max_pool2d, F.avg_pool2d, F.adaptive_avg_pool2d)},
}


def _spread(t: Tensor, dim: int | None, lanes: int) -> Tensor:
    """Bring the lane axis to the front; what all lanes share is repeated."""
    return t.expand(lanes, *t.shape) if dim is None else t.movedim(dim, 0)


def _merged(layout: Layout, x: Tensor) -> Tensor:
    """Turn [lane, batch, channel, height, width] into [batch, lane * channel, height, width]: a view if it lies so."""
    if layout.channels_last:
        return x.permute(1, 3, 4, 0, 2).flatten(3).permute(0, 3, 1, 2)
    return x.transpose(0, 1).flatten(1, 2)
