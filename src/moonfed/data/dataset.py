"""A data set lives on the device as uint8 pictures and integer labels."""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor


class Recipe(NamedTuple):
    """The augmentation of a data set: a random crop after padding, a random horizontal flip, a random rotation."""

    pad: int = 0
    reflect: bool = False  # pad by reflection instead of black
    flip: bool = False
    rotate: float = 0.0  # degrees to either side

    @property
    def changes(self) -> bool:
        """Whether a row looks different each time it is seen."""
        return bool(self.pad or self.flip or self.rotate)


@dataclass(frozen=True)
class Dataset:
    """Training and test rows, with what is published for them: pixel statistics, augmentation, batch size."""

    name: str
    images: Tensor  # uint8 [row, channel, height, width]
    labels: Tensor  # int64 [row]
    test_images: Tensor
    test_labels: Tensor
    classes: int
    mean: tuple[float, ...]  # per channel, in pixel units
    std: tuple[float, ...]
    recipe: Recipe
    batch: int
    encoder: str = "cnn"  # the published one

    def to(self, device: torch.device) -> "Dataset":
        """Move every tensor to a device."""
        moved = {k: getattr(self, k).to(device) for k in ("images", "labels", "test_images", "test_labels")}
        return replace(self, **moved)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of every pixel and label: a checkpoint of other data is told by it."""
        digest = hashlib.sha256()
        for tensor in (self.images, self.labels, self.test_images, self.test_labels):
            digest.update(str(tuple(tensor.shape)).encode())
            digest.update(tensor.cpu().numpy().tobytes())
        return digest.hexdigest()
