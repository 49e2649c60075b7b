"""Convolutions in fp16: factors with 10 bits of mantissa, as in TF32, in half of the bytes."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import Function
from torch.overrides import TorchFunctionMode

GRADIENT_SCALE = 1024.0  # fp16 ends at 65,504 and loses bits below 6e-5: gradients are small and need scaling


class Fp16Conv(Function):
    """A convolution of 32-bit tensors whose factors are rounded to fp16; sums are accumulated in 32 bits."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Tensor:
        """Convolve, and save the rounded factors."""
        x, w, b, stride, padding, dilation, groups = args
        small_x, small_w = x.half(), w.half()
        ctx.save_for_backward(small_x, small_w)
        ctx.sizes = stride, padding, dilation, groups
        ctx.dtype, ctx.has_bias = x.dtype, b is not None
        out = F.conv2d(small_x, small_w, None, stride, padding, dilation, groups).to(x.dtype)
        return out if b is None else out + b[:, None, None]

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        """Compute the gradients in fp16, scaled."""
        (grad,) = grad_outputs
        x, w = ctx.saved_tensors
        wanted = [ctx.needs_input_grad[0], True, False]
        stride, padding, dilation, groups = ctx.sizes
        scaled = (grad * GRADIENT_SCALE).half()
        grads = convolution_backward(scaled, x, w, stride, padding, dilation, groups, wanted)
        grad_x, grad_w = (None if t is None else t.to(ctx.dtype) / GRADIENT_SCALE for t in grads[:2])
        return grad_x, grad_w, sum_per_channel(grad) if ctx.has_bias else None, None, None, None, None


fp16_conv: Callable[..., Tensor] = Fp16Conv.apply  # pyright: ignore


def convolution_backward(
    grad: Tensor,
    x: Tensor,
    w: Tensor,
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
    wanted: list[bool],
) -> list[Tensor | None]:
    """Return the gradients of a convolution's input, weights and bias, as far as wanted."""
    sizes = ([w.shape[0]], list(stride), list(padding), list(dilation), False, [0, 0], groups)
    backward: Any = torch.ops.aten.convolution_backward  # pyright: ignore[reportUnknownMemberType]
    grads = backward(grad, x, w, *sizes, wanted)
    return [grad if want else None for grad, want in zip(grads, wanted, strict=True)]


def sum_per_channel(grad: Tensor) -> Tensor:
    """Sum images to one number per channel, in two steps.

    In one step, it was compiled to a kernel of 11 us or of 145 us on an H200 (torch 2.11), depending on the loss.
    """
    return grad.sum((2, 3)).sum(0)


class TensorCoreConvolutions(TorchFunctionMode):
    """Runs the two-dimensional convolutions of any module with channels innermost, in fp16 if asked."""

    def __init__(self, fp16: bool) -> None:
        super().__init__()
        self.fp16 = fp16

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        return self._conv2d(*args, **kwargs) if func is torch.conv2d else func(*args, **kwargs)

    def _conv2d(
        self,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        if input.dim() == 4 and input.is_contiguous(memory_format=torch.channels_last):
            weight = weight.contiguous(memory_format=torch.channels_last)
        if not self.fp16 or isinstance(padding, str) or input.dim() != 4:
            return F.conv2d(input, weight, bias, stride, padding, dilation, groups)
        return fp16_conv(input, weight, bias, pair(stride), pair(padding), pair(dilation), groups)


def pair(size: Any) -> tuple[int, int]:
    """Read a size by height and width."""
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[-1]))
