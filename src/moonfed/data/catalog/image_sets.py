"""The image data sets: their published rows, pixel statistics, augmentation and checksums."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from moonfed.data.catalog.monitor import SourceError
from moonfed.data.dataset import Augmentation

Pixels = NDArray[np.uint8]


class ImageArrays(NamedTuple):
    """The rows of a data set, in the official order."""

    train_images: Pixels  # [row, channel, height, width]
    train_labels: Pixels  # [row]
    test_images: Pixels
    test_labels: Pixels


@dataclass(frozen=True)
class ImageEntry:
    """A data set in the catalog: how a download is verified, and how the rows are used."""

    name: str
    train: int  # rows
    test: int
    classes: int
    shape: tuple[int, int, int]  # channel, height, width
    mean: tuple[float, ...]  # per channel, in pixel units
    std: tuple[float, ...]
    augmentation: Augmentation
    digests: Mapping[str, str] | None = None  # SHA-256 of the uint8 arrays, images as [row, height, width, channel]
    batch: int = 64
    encoder: str = "cnn"  # the paper's encoder

    @property
    def file(self) -> str:
        """The name of its file in the cache."""
        return f"{self.name}.safetensors"

    @property
    def size(self) -> int:
        """Bytes of the images and labels in the cache."""
        return (self.train + self.test) * (int(np.prod(self.shape)) + 8)


def _in_pixel_units(*fractions: float) -> tuple[float, ...]:
    return tuple(255 * fraction for fraction in fractions)


_ENTRIES = (
    ImageEntry(
        "cifar10",
        50_000,
        10_000,
        10,
        (3, 32, 32),
        (125.3, 123.0, 113.9),
        (63.0, 62.1, 66.7),
        Augmentation(pad=4, reflect=True, flip=True),
        {
            "train_images": "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
            "train_labels": "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
            "test_images": "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
            "test_labels": "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
        },
    ),
    ImageEntry(
        "cifar100",
        50_000,
        10_000,
        100,
        (3, 32, 32),
        _in_pixel_units(0.5070751592371323, 0.48654887331495095, 0.4409178433670343),
        _in_pixel_units(0.2673342858792401, 0.2564384629170883, 0.27615047132568404),
        Augmentation(pad=4, flip=True, rotate=15.0),
        {
            "train_images": "4e457917601a66aed021f5fa37957b56c6319557c0a8ed5484de3c390af45430",
            "train_labels": "9f11b9f97aad759ba6df0a33e3218b01d8deaf4ed3a14aa1185d69b9ad7ebcb3",
            "test_images": "4cb8e5d9309da489bf6b19cc10cd96c3ae6f8daf225380b605aaee4c0d6aee19",
            "test_labels": "4dad7d09c7c97d33f6cb928d705cf4196221316fd6e31bdd978a08ed9103ee0b",
        },
        encoder="resnet50",
    ),
    ImageEntry(  # no digests: the pixels of a JPEG depend on the decoder
        "tinyimagenet",
        100_000,
        10_000,
        200,
        (3, 64, 64),
        _in_pixel_units(0.5, 0.5, 0.5),
        _in_pixel_units(0.5, 0.5, 0.5),
        Augmentation(),
        encoder="resnet50",
    ),
    ImageEntry(  # not in the paper; mean and deviation are those of the training pixels
        "fashionmnist",
        60_000,
        10_000,
        10,
        (1, 28, 28),
        (72.94,),
        (90.02,),
        Augmentation(),
        {
            "train_images": "2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012",
            "train_labels": "657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7",
            "test_images": "c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a",
            "test_labels": "3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9",
        },
    ),
)
IMAGE_SETS = {entry.name: entry for entry in _ENTRIES}

# Names of the classes for figures and tables; models and predictions keep the published numbers.
CLASS_NAMES: dict[str, tuple[str, ...]] = {
    "cifar10": ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    "fashionmnist": (
        "T-shirt",
        "trouser",
        "pullover",
        "dress",
        "coat",
        "sandal",
        "shirt",
        "sneaker",
        "bag",
        "ankle boot",
    ),
}


def verify_images(entry: ImageEntry, images: ImageArrays) -> None:
    """Refuse images that are not those of an entry: rows are counted, and hashed where digests are published."""
    for split, rows in (("train", entry.train), ("test", entry.test)):
        pixels, labels = (getattr(images, f"{split}_{part}") for part in ("images", "labels"))
        if pixels.shape[1:] != entry.shape:
            shape, expected = _format_shape(pixels.shape[1:]), _format_shape(entry.shape)
            raise SourceError(f"its images are {shape}, those of {entry.name} are {expected}")
        if (len(pixels), len(labels)) != (rows, rows):
            raise SourceError(f"it has {len(pixels):,} {split} rows, {entry.name} has {rows:,}")
        if len(labels) and (int(labels.max()) >= entry.classes or len(np.unique(labels)) != entry.classes):
            raise SourceError(f"its {split} rows do not have the {entry.classes} classes of {entry.name}")
    for part, expected in (entry.digests or {}).items():
        digest = array_digest(getattr(images, part))
        if digest != expected:
            raise SourceError(
                f"its {part} differ from those of {entry.name}: "
                f"SHA-256 is {digest[:12]}..., expected {expected[:12]}..."
            )


def array_digest(array: Pixels) -> str:
    """Hash labels unchanged, and images as [row, height, width, channel]."""
    published = array if array.ndim == 1 else array.transpose(0, 2, 3, 1)
    return hashlib.sha256(np.ascontiguousarray(published).reshape(-1).data).hexdigest()


def _format_shape(shape: tuple[int, ...]) -> str:
    return "x".join(str(n) for n in shape)
