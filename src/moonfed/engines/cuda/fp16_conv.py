"""Convolutions in fp16: factors of 10 bits, as TF32 has them, in half of its bytes; what flows back is scaled."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import Function
from torch.overrides import TorchFunctionMode

# fp16 ends at 65,504 and thins out below 6e-5: gradients are small, so they travel multiplied by this.
SCALE = 1024.0


class HalfConv(Function):
    """A convolution of 32-bit numbers whose factors are rounded to fp16; sums are kept in 32 bits."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        x: Tensor,
        w: Tensor,
        b: Tensor | None,
        stride: tuple[int, int],
        padding: tuple[int, int],
        dilation: tuple[int, int],
        groups: int,
    ) -> Tensor:
        """Convolve, and keep the rounded factors."""
        small_x, small_w = x.half(), w.half()
        ctx.save_for_backward(small_x, small_w)
        ctx.sizes = list(stride), list(padding), list(dilation), groups
        ctx.dtype, ctx.biased = x.dtype, b is not None
        made = F.conv2d(small_x, small_w, None, stride, padding, dilation, groups).to(x.dtype)
        return made if b is None else made + b[:, None, None]

    @staticmethod
    def backward(ctx: Any, made: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """Send the gradient back scaled, as fp16 has too few small numbers."""
        x, w = ctx.saved_tensors
        stride, padding, dilation, groups = ctx.sizes
        wanted = [ctx.needs_input_grad[0], True, False]
        sizes = ([w.shape[0]], stride, padding, dilation, False, [0, 0], groups, wanted)
        of_x, of_w, _ = torch.ops.aten.convolution_backward((made * SCALE).half(), x, w, *sizes)
        back = [None if t is None else t.to(ctx.dtype) / SCALE for t in (of_x if wanted[0] else None, of_w)]
        return *back, by_channel(made) if ctx.biased else None, None, None, None, None


def by_channel(made: Tensor) -> Tensor:
    """Sum pictures to one number a channel, in two steps.

    In one, MOON's step was compiled to a kernel of 145 us on an H200 (torch 2.11), FedAvg's to one of 11.
    """
    return made.sum((2, 3)).sum(0)


class HalfConvolutions(TorchFunctionMode):
    """Lets the two-dimensional convolutions of any module run in fp16."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        return _conv2d(*args, **kwargs) if func is torch.conv2d else func(*args, **kwargs)


def _conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    if isinstance(padding, str) or input.dim() != 4:
        return F.conv2d(input, weight, bias, stride, padding, dilation, groups)
    return HalfConv.apply(input, weight, bias, pair(stride), pair(padding), pair(dilation), groups)  # type: ignore[return-value]


def pair(size: Any) -> tuple[int, int]:
    """Read a size of a layer's height and width."""
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[-1]))
