"""Tiny-ImageNet-200 in its official layout: one folder of training images per class, one of validation images."""

import io
from pathlib import Path, PurePosixPath

import numpy as np
from PIL import Image

from moonfed.data.catalog.archive import ArchiveReader, open_archive
from moonfed.data.catalog.image_sets import ImageArrays, Pixels
from moonfed.data.catalog.monitor import SILENT, SourceError, TransferMonitor

SIDE = 64
MAX_MEMBER_BYTES = 1 << 20  # the images and lists are smaller
LabelledFiles = list[tuple[str, int]]  # an image's name and class


def read_tinyimagenet(path: Path, monitor: TransferMonitor = SILENT) -> ImageArrays:
    """Read Tiny-ImageNet from its zip file or folder: training rows, and the validation rows as test set.

    Classes are numbered in the order of their sorted WordNet ids; training rows are in the order of class and file
    name. The class of a validation image is only in val_annotations.txt: a reader that takes folders for classes would
    put all validation images into one class.
    """
    with open_archive(path, "tiny-imagenet-200") as archive:
        classes = {wnid: k for k, wnid in enumerate(sorted(set(_read_text(archive, "wnids.txt").split())))}
        train = [
            (f"train/{wnid}/images/{name}", k)
            for wnid, k in classes.items()
            for name in archive.names(f"train/{wnid}/images")
            if name.endswith(".JPEG")
        ]
        test = _validation_files(archive, classes)
        total = len(train) + len(test)
        train_images = _decode_images(archive, train, 0, total, monitor)
        test_images = _decode_images(archive, test, len(train), total, monitor)
    return ImageArrays(train_images, _label_array(train), test_images, _label_array(test))


def _validation_files(archive: ArchiveReader, classes: dict[str, int]) -> LabelledFiles:
    rows: LabelledFiles = []
    for line in _read_text(archive, "val/val_annotations.txt").splitlines():
        name, _, rest = line.partition("\t")
        wnid = rest.partition("\t")[0]
        if wnid not in classes or PurePosixPath(name).name != name:
            raise SourceError(f"val/val_annotations.txt has a line without an image of a known class: {line[:60]}")
        rows.append((f"val/images/{name}", classes[wnid]))
    return rows


def _decode_images(
    archive: ArchiveReader, rows: LabelledFiles, done: int, total: int, monitor: TransferMonitor
) -> Pixels:
    images = np.empty((len(rows), 3, SIDE, SIDE), dtype=np.uint8)
    for i, (name, _) in enumerate(rows):
        images[i] = _decode_image(name, archive.read(name, MAX_MEMBER_BYTES)).transpose(2, 0, 1)
        if i % 500 == 0 or i == len(rows) - 1:
            monitor.update("decoding", done + i + 1, total, "images")
    return images


def _decode_image(name: str, content: bytes) -> Pixels:
    """Decode a JPEG to RGB; some of the official images are grey."""
    try:
        with Image.open(io.BytesIO(content), formats=("JPEG",)) as image:
            if image.size != (SIDE, SIDE):
                raise SourceError(f"{name} should be {SIDE}x{SIDE} pixels, it is {image.width}x{image.height}")
            return np.asarray(image.convert("RGB"))
    except (OSError, ValueError, SyntaxError) as error:
        raise SourceError(f"{name} is not a readable JPEG file: {type(error).__name__}") from None


def _read_text(archive: ArchiveReader, name: str) -> str:
    return archive.read(name, MAX_MEMBER_BYTES).decode("utf-8", errors="replace")


def _label_array(rows: LabelledFiles) -> Pixels:
    if any(k > 255 for _, k in rows):
        raise SourceError("wnids.txt names more than 256 classes")
    return np.array([k for _, k in rows], dtype=np.uint8)
