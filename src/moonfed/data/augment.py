"""Gather, crop, flip and normalise a batch in one indexing operation on the device."""

import torch
from torch import Tensor

from moonfed.data.dataset import Dataset
from moonfed.data.plan import Plan


def gather(data: Dataset, plan: Plan, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the pictures [..., channel, height, width] and labels [...] of a plan of any leading shape."""
    shape = plan.rows.shape
    rows, recipe = plan.rows.reshape(-1), data.recipe
    if recipe.pad or recipe.flip:
        pixels = _cropped(data, rows, plan.crops.reshape(-1, 2), plan.flips.reshape(-1))
    else:
        pixels = data.images[rows]
    x = normalise(data, pixels, dtype)
    return x.reshape(*shape, *x.shape[1:]), data.labels[rows].reshape(shape)


def normalise(data: Dataset, pixels: Tensor, dtype: torch.dtype) -> Tensor:
    """Subtract the mean and divide by the standard deviation, channel by channel."""
    mean, std = (torch.tensor(v, dtype=dtype, device=pixels.device).view(-1, 1, 1) for v in (data.mean, data.std))
    return (pixels.to(dtype) - mean) / std


def _cropped(data: Dataset, rows: Tensor, crops: Tensor, flips: Tensor) -> Tensor:
    channels, height, width = data.images.shape[1:]
    pad, device = data.recipe.pad, rows.device
    y = torch.arange(height, device=device) + crops[:, :1] - pad  # [row, height], in the unpadded picture
    x = torch.arange(width, device=device) + crops[:, 1:] - pad
    x = torch.where(flips[:, None], x.flip(1), x)
    if data.recipe.reflect:
        y, x = ((v.abs() - 2 * (v.abs() - last).clamp(min=0)) for v, last in ((y, height - 1), (x, width - 1)))
        black = None
    else:
        black = ((y < 0) | (y >= height))[:, :, None] | ((x < 0) | (x >= width))[:, None, :]
        y, x = y.clamp(0, height - 1), x.clamp(0, width - 1)
    channel = torch.arange(channels, device=device)[None, :, None, None]
    pixels = data.images[rows[:, None, None, None], channel, y[:, None, :, None], x[:, None, None, :]]
    return pixels if black is None else pixels.masked_fill(black[:, None], 0)
