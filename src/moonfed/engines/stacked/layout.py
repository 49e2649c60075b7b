"""How the images of all lanes are laid out in memory.

vmap passes a convolution its lanes as one more axis and would copy them into place, layer after layer. Here the lanes
of an image lie beside its channels in memory from the first convolution on. A layer of all lanes is then one grouped
convolution, and little is copied. CPU kernels are fast in the order [batch, height, width, lane, channel]. GPU kernels
are fast in the order [batch, lane, channel, height, width], with channels padded to multiples of 4 and 8.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class LaneLayout(NamedTuple):
    """How lanes are laid out in memory, and how they are convolved."""

    channels_last: bool
    pad_in: int = 1  # a convolution's input and output channels are padded with zeros to a multiple of these
    pad_out: int = 1
    flipped_backward: bool = False  # whether the gradient of a convolution's input is computed as a forward convolution
    fp16: bool = False  # whether convolutions run in fp16


CPU_LAYOUT = LaneLayout(channels_last=True)
FP32_LAYOUT = LaneLayout(channels_last=False)
TF32_LAYOUT = LaneLayout(channels_last=False, pad_in=4, pad_out=8, flipped_backward=True)
FP16_LAYOUT = LaneLayout(channels_last=False, pad_in=4, pad_out=8, fp16=True)
GPU_LAYOUTS = {"fp32": FP32_LAYOUT, "tf32": TF32_LAYOUT, "fp16": FP16_LAYOUT}


def arrange_images(layout: LaneLayout, images: Tensor) -> Tensor:
    """Reorder images [lane, step, batch, channel, height, width] in memory; their shape stays."""
    order = (1, 2, 4, 5, 0, 3) if layout.channels_last else (1, 2, 0, 3, 4, 5)
    back = [order.index(axis) for axis in range(6)]
    return images.permute(order).contiguous().permute(back)


def lanes_first(t: Tensor, dim: int | None, lanes: int) -> Tensor:
    """Move the lane axis to the front; a tensor that all lanes share is expanded."""
    return t.expand(lanes, *t.shape) if dim is None else t.movedim(dim, 0)


def merge_lanes(layout: LaneLayout, x: Tensor) -> Tensor:
    """Turn [lane, batch, channel, height, width] into [batch, lane * channel, height, width]; a view where possible."""
    if layout.channels_last:
        return x.permute(1, 3, 4, 0, 2).flatten(3).permute(0, 3, 1, 2)
    return x.transpose(0, 1).flatten(1, 2)


def split_lanes(x: Tensor, lanes: int) -> Tensor:
    """Turn [batch, lane * channel, height, width] into [batch, lane, channel, height, width]."""
    return torch.unflatten(x, 1, (lanes, -1))
