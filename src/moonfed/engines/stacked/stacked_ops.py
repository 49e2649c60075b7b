"""Runs convolutions, poolings and group norms of stacked lanes fast, whatever network calls them."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import Function
from torch.func import vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from moonfed.engines.stacked.layout import CPU_LAYOUT, LaneLayout, arrange_images, lanes_first, merge_lanes, split_lanes
from moonfed.engines.stacked.stacked_conv import stacked_conv2d


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
            with self, _math_attention() if self.layout is CPU_LAYOUT else nullcontext():
                return of_lanes(*trees)

        return run

    def arrange(self, images: Tensor) -> Tensor:
        """Reorder images [lane, step, batch, channel, height, width] in memory for the layout."""
        return arrange_images(self.layout, images)


def _math_attention() -> AbstractContextManager[Any]:
    """Switch off fused attention, which has no batching rule on a CPU."""
    return sdpa_kernel(SDPBackend.MATH)  # pyright: ignore[reportUnknownVariableType]


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
