"""Lanes laid side by side as channels: how convolutions and poolings of a stack run fast, whatever the net.

vmap hands a convolution its lanes as one more axis and would copy them into place, layer after layer, in a layout that
CPU kernels are slow in. Here the lanes of a picture lie beside its channels in memory from the first convolution on,
[batch, height, width, lane, channel], so that a layer of all lanes is one grouped convolution and nothing is copied.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import Function
from torch.overrides import TorchFunctionMode

Size = int | tuple[int, ...] | str


class _Lanes(Function):
    """A layer that says itself what it does with lanes; without lanes it is the plain layer."""

    @staticmethod
    def forward(plain: Callable[..., Tensor], stacked: Callable[..., Tensor], *args: Any) -> Tensor:  # type: ignore[override]
        return plain(*args)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        raise NotImplementedError("gradients are taken outside of the lanes")

    @staticmethod
    def vmap(info: Any, dims: Any, plain: Any, stacked: Callable[..., Tensor], *args: Any) -> tuple[Tensor, int]:
        lanes = info.batch_size
        return stacked(lanes, dims[2:], *args).unflatten(1, (lanes, -1)), 1


class side_by_side(TorchFunctionMode):  # noqa: N801 - reads as a statement: with side_by_side():
    """Lets the convolutions and poolings of any module work on lanes that lie side by side."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        layer = _LAYERS.get(func)
        call = layer(*args, **kwargs) if layer else None
        return _Lanes.apply(*call) if call else func(*args, **kwargs)


def _conv2d(
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
    return F.conv2d, _stacked_conv2d, input, weight, bias, stride, padding, dilation, groups


def _stacked_conv2d(
    lanes: int, dims: Any, x: Tensor, w: Tensor, b: Tensor | None, stride: Any, padding: Any, dilation: Any, groups: int
) -> Tensor:
    w = _spread(w, dims[1], lanes).flatten(0, 1).contiguous(memory_format=torch.channels_last)
    b = None if b is None else _spread(b, dims[2], lanes).flatten(0, 1)
    return F.conv2d(_merged(x, dims[0], lanes), w, b, stride, padding, dilation, groups * lanes)


def _pool(plain: Callable[..., Tensor]) -> Callable[..., tuple[Any, ...] | None]:
    def call(input: Tensor, *args: Any, return_indices: bool = False, **kwargs: Any) -> tuple[Any, ...] | None:
        if input.dim() != 4 or return_indices:
            return None

        def each(x: Tensor) -> Tensor:
            return plain(x, *args, **kwargs)

        return each, lambda lanes, dims, x: each(_merged(x, dims[0], lanes)), input

    return call


_LAYERS: dict[Any, Callable[..., tuple[Any, ...] | None]] = {
    torch.conv2d: _conv2d,
    **{pool: _pool(pool) for pool in (F.max_pool2d, F.avg_pool2d, F.adaptive_avg_pool2d)},
}


def _spread(t: Tensor, dim: int | None, lanes: int) -> Tensor:
    """Bring the lane axis to the front; what all lanes share is repeated."""
    return t.expand(lanes, *t.shape) if dim is None else t.movedim(dim, 0)


def _merged(x: Tensor, dim: int | None, lanes: int) -> Tensor:
    """Lay lanes beside channels, [batch, lane * channel, height, width] in channels_last: a view if they lie so."""
    lying = _spread(x, dim, lanes).permute(1, 3, 4, 0, 2)  # [batch, height, width, lane, channel]
    return lying.flatten(3).permute(0, 3, 1, 2)
