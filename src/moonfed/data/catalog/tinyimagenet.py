"""Tiny-ImageNet-200 as it comes: training pictures in folders of their classes, validation pictures in one folder."""

import io
from pathlib import Path, PurePosixPath

import numpy as np
from PIL import Image

from moonfed.data.catalog.archive import Shelf, opened
from moonfed.data.catalog.image_sets import Pictures, Pixels
from moonfed.data.catalog.monitor import QUIET, SourceError, Watch

SIDE = 64
MOST = 1 << 20  # bytes of one picture or list, more than any has
Named = list[tuple[str, int]]  # a picture's name and class


def read_tinyimagenet(path: Path, watch: Watch = QUIET) -> Pictures:
    """Read Tiny-ImageNet from its zip file or folder: the training rows, and the validation rows as the test set.

    Classes are numbered in the order of their sorted WordNet names; training rows stand in the order of class and file
    name. The class of a validation picture is only in val_annotations.txt: a reader of folders alone would put all of
    them into one class.
    """
    with opened(path, "tiny-imagenet-200") as shelf:
        classes = {wnid: k for k, wnid in enumerate(sorted(set(_text(shelf, "wnids.txt").split())))}
        train = [
            (f"train/{wnid}/images/{name}", k)
            for wnid, k in classes.items()
            for name in shelf.names(f"train/{wnid}/images")
            if name.endswith(".JPEG")
        ]
        test = _validation(shelf, classes)
        both = len(train) + len(test)
        train_images = _decoded(shelf, train, 0, both, watch)
        test_images = _decoded(shelf, test, len(train), both, watch)
    return Pictures(train_images, _classes(train), test_images, _classes(test))


def _validation(shelf: Shelf, classes: dict[str, int]) -> Named:
    rows: Named = []
    for line in _text(shelf, "val/val_annotations.txt").splitlines():
        name, _, rest = line.partition("\t")
        wnid = rest.partition("\t")[0]
        if wnid not in classes or PurePosixPath(name).name != name:
            raise SourceError(f"val/val_annotations.txt has a line that names no picture of a known class: {line[:60]}")
        rows.append((f"val/images/{name}", classes[wnid]))
    return rows


def _decoded(shelf: Shelf, rows: Named, before: int, both: int, watch: Watch) -> Pixels:
    images = np.empty((len(rows), 3, SIDE, SIDE), dtype=np.uint8)
    for i, (name, _) in enumerate(rows):
        images[i] = _picture(name, shelf.read(name, MOST)).transpose(2, 0, 1)
        if i % 500 == 0 or i == len(rows) - 1:
            watch.moved("decoding", before + i + 1, both, "pictures")
    return images


def _picture(name: str, content: bytes) -> Pixels:
    """Decode a JPEG; some are grey, and become red, green and blue of the same value."""
    try:
        with Image.open(io.BytesIO(content), formats=("JPEG",)) as image:
            if image.size != (SIDE, SIDE):
                raise SourceError(f"{name} should be {SIDE}x{SIDE} pixels, it is {image.width}x{image.height}")
            return np.asarray(image.convert("RGB"))
    except (OSError, ValueError, SyntaxError) as error:
        raise SourceError(f"{name} is no JPEG file that can be read: {type(error).__name__}") from None


def _text(shelf: Shelf, name: str) -> str:
    return shelf.read(name, MOST).decode("utf-8", errors="replace")


def _classes(rows: Named) -> Pixels:
    if any(k > 255 for _, k in rows):
        raise SourceError("wnids.txt names more than 256 classes")
    return np.array([k for _, k in rows], dtype=np.uint8)
