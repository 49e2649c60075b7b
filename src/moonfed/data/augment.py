"""Gathers, crops, flips, rotates and normalises a batch on the device of the data."""

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import pad as constant_pad

from moonfed.data.batches import BatchPlan
from moonfed.data.dataset import Dataset

MAX_REPEATED = 4096  # length of the axes along which the channels' values are repeated


def gather(
    data: Dataset, plan: BatchPlan, dtype: torch.dtype, lay: Callable[[Tensor], Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Return the inputs [..., channel, height, width] and labels [...] of a plan of any leading shape.

    lay may change the memory layout of images; it is applied to the bytes, before they become floats.
    """
    shape = plan.rows.shape
    flat = plan._replace(
        rows=plan.rows.reshape(-1),
        crops=plan.crops.reshape(-1, 2),
        flips=plan.flips.reshape(-1),
        angles=plan.angles.reshape(-1),
    )
    if not data.augmentation.changes:
        pixels = data.inputs.index_select(0, flat.rows)
    elif data.inputs.is_cuda or data.augmentation.rotate:
        pixels = _augment(data, flat)
    else:
        pixels = _crop_and_flip(data, flat)
    pixels = pixels.reshape(*shape, *pixels.shape[1:])
    return normalise(data, lay(pixels) if lay and data.inputs.dim() == 4 else pixels, dtype), data.labels[plan.rows]


def normalise(data: Dataset, pixels: Tensor, dtype: torch.dtype) -> Tensor:
    """Subtract the mean and divide by the deviation of each channel; word ids and ready numbers stay unchanged."""
    if data.words:
        return pixels
    if not data.mean:
        return pixels.to(dtype)
    mean, std = (_channel_tensor(values, dtype, pixels.device) for values in (data.mean, data.std))
    images = pixels.to(dtype)
    if not images.is_cuda and len(data.mean) > 1 and images.stride(-3) < images.stride(-1):
        mean, std = (_repeat_along_memory(values, images) for values in (mean, std))
    return images.sub_(mean).div_(std)


def _repeat_along_memory(values: Tensor, images: Tensor) -> Tensor:
    """Repeat one value per channel along the axes that lie innermost in the memory of images.

    Where channels are the innermost axis, a CPU would otherwise take as many numbers at a time as there are channels.
    """
    channel = images.dim() - 3
    for axis in range(images.dim()):
        if axis != channel and images.stride(axis) * images.shape[axis] > MAX_REPEATED:
            images = images.narrow(axis, 0, 1)
    return torch.empty_like(images).copy_(values)


def sample_inputs(data: Dataset) -> Tensor:
    """Return the first batch of training rows, at least two, normalised: what a custom encoder is tried on."""
    return normalise(data, data.inputs[: max(2, data.batch)], torch.get_default_dtype())


@lru_cache(maxsize=64)
def _channel_tensor(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Keep numbers on the device: a CUDA graph cannot copy them there while it is captured."""
    return torch.tensor(values, dtype=dtype, device=device).view(-1, 1, 1)


def _augment(data: Dataset, plan: BatchPlan) -> Tensor:
    """Look up the source of every pixel of the augmented images: undo rotation, flip, crop and padding."""
    channels, height, width = data.inputs.shape[1:]
    pad, device = data.augmentation.pad, plan.rows.device
    y = torch.arange(height, device=device)[None, :, None]  # [row, height, width], broadcast where it can be
    x = torch.arange(width, device=device)[None, None, :]
    outside = None
    if data.augmentation.rotate:
        y, x = _rotate(y, x, plan.angles, height, width)
        outside = _is_outside(y, height) | _is_outside(x, width)
    x = torch.where(plan.flips[:, None, None], width - 1 - x, x)
    y, x = y + plan.crops[:, 0, None, None] - pad, x + plan.crops[:, 1, None, None] - pad
    if data.augmentation.reflect:
        y, x = _reflect(y, height), _reflect(x, width)
    elif pad:
        padding = _is_outside(y, height) | _is_outside(x, width)
        outside = padding if outside is None else outside | padding
    y, x = y.clamp(0, height - 1), x.clamp(0, width - 1)
    channel = torch.arange(channels, device=device)[None, :, None, None]
    pixels = data.inputs[plan.rows[:, None, None, None], channel, y[:, None], x[:, None]]
    return pixels if outside is None else pixels.masked_fill(outside[:, None], 0)


def _crop_and_flip(data: Dataset, plan: BatchPlan) -> Tensor:
    """Do the same without rotation by copying whole rows of pixels, which is faster on a CPU than single pixels."""
    pad, (height, width) = data.augmentation.pad, data.inputs.shape[2:]
    pixels = data.inputs.index_select(0, plan.rows)
    if data.augmentation.reflect:
        for axis in (2, 3):
            before, after = pixels.narrow(axis, 1, pad), pixels.narrow(axis, pixels.shape[axis] - pad - 1, pad)
            pixels = torch.cat([before.flip(axis), pixels, after.flip(axis)], axis)
    else:
        pixels = constant_pad(pixels, (pad, pad, pad, pad))
    windows = pixels.unfold(2, height, 1).unfold(3, width, 1)  # [row, channel, top, left, height, width]
    each = torch.arange(len(pixels))
    pixels = windows[each, :, plan.crops[:, 0], plan.crops[:, 1]]
    flipped = plan.flips.nonzero()[:, 0]
    return pixels.index_copy_(0, flipped, pixels.index_select(0, flipped).flip(-1))


def _rotate(y: Tensor, x: Tensor, angles: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Rotate coordinates about the centre to the nearest pixel, in PIL's 16-bit fixed point to match it exactly."""
    radians = torch.deg2rad(-angles)[:, None, None]
    cos, sin = torch.cos(radians), torch.sin(radians)
    centre_y, centre_x = height / 2, width / 2

    def fixed(value: Tensor) -> Tensor:
        return torch.floor(value * 65536 + 0.5).to(torch.int64)

    start_x = centre_x - cos * centre_x - sin * centre_y + (cos + sin) / 2
    start_y = centre_y + sin * centre_x - cos * centre_y + (cos - sin) / 2
    from_x = fixed(start_x) + x * fixed(cos) + y * fixed(sin)
    from_y = fixed(start_y) + x * fixed(-sin) + y * fixed(cos)
    return from_y >> 16, from_x >> 16


def _is_outside(position: Tensor, size: int) -> Tensor:
    return (position < 0) | (position >= size)


def _reflect(position: Tensor, size: int) -> Tensor:
    inside = position.abs()
    return inside - 2 * (inside - (size - 1)).clamp(min=0)
