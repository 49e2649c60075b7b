"""Fashion-MNIST: four idx files, compressed or not, as they come from their home or from Debian."""

import gzip
import io
import zlib
from pathlib import Path

import numpy as np

from moonfed.core.files import short
from moonfed.data.catalog.archive import Folder
from moonfed.data.catalog.image_sets import Pictures, Pixels
from moonfed.data.catalog.monitor import QUIET, SourceError, Watch
from moonfed.data.catalog.package_clients import read_deb

NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
DEBIAN = "usr/share/datasets/fashion-mnist"
MOST = 100 << 20  # bytes of one file, more than the largest has
IMAGES, LABELS = 2051, 2049  # how an idx file of bytes begins, with three dimensions or one


def read_fashionmnist(path: Path, watch: Watch = QUIET) -> Pictures:
    """Read Fashion-MNIST from the folder that holds its four files."""
    if not path.is_dir():
        raise SourceError(f"a folder with {NAMES[0]}.gz and its three companions is needed")
    folder = Folder(path)
    gz = [(path / f"{name}.gz").exists() for name in NAMES]
    return _decoded({n: folder.read(f"{n}.gz" if z else n, MOST) for n, z in zip(NAMES, gz, strict=True)})


def read_debian(path: Path, watch: Watch = QUIET) -> Pictures:
    """Read Fashion-MNIST from Debian's package dataset-fashion-mnist."""
    found = read_deb(path, {f"{DEBIAN}/{name}.gz": MOST for name in NAMES})
    return _decoded({name: found[f"{DEBIAN}/{name}.gz"] for name in NAMES})


def _decoded(files: dict[str, bytes]) -> Pictures:
    train_images, train_labels, test_images, test_labels = (_idx(name, files[name]) for name in NAMES)
    return Pictures(train_images, train_labels, test_images, test_labels)


def _idx(name: str, content: bytes) -> Pixels:
    """Read an idx file: four bytes of kind, four bytes a dimension, then the values."""
    if content[:2] == b"\x1f\x8b":
        try:
            with gzip.open(io.BytesIO(content)) as file:
                content = file.read(MOST + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise SourceError(f"{name} cannot be decompressed: {short(error)}") from None
    dimensions = 3 if "images" in name else 1
    head = 4 + 4 * dimensions
    sizes = np.frombuffer(content[: min(head, len(content) // 4 * 4)], ">u4").tolist()
    if len(sizes) != 1 + dimensions or sizes[0] != (IMAGES if dimensions == 3 else LABELS):
        raise SourceError(f"{name} is no idx file of {'pictures' if dimensions == 3 else 'labels'}")
    if len(content) - head != np.prod(sizes[1:], dtype=object):
        raise SourceError(f"{name} should hold {' x '.join(map(str, sizes[1:]))} bytes, it holds {len(content) - head}")
    values = np.frombuffer(content, np.uint8, offset=head).reshape(sizes[1:])
    return values[:, None] if dimensions == 3 else values
