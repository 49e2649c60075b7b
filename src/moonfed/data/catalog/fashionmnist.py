"""Fashion-MNIST: four idx files, compressed or not, from their official site or from Debian."""

import gzip
import io
import zlib
from pathlib import Path

import numpy as np

from moonfed.core.files import short
from moonfed.data.catalog.archive import FolderReader
from moonfed.data.catalog.image_sets import ImageArrays, Pixels
from moonfed.data.catalog.monitor import SILENT, SourceError, TransferMonitor
from moonfed.data.catalog.package_clients import read_deb

FILE_NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
DEBIAN_FOLDER = "usr/share/datasets/fashion-mnist"
MAX_FILE_BYTES = 100 << 20  # the files are smaller
IMAGE_MAGIC, LABEL_MAGIC = 2051, 2049  # the first four bytes of an idx file of bytes with three axes, with one


def read_fashionmnist(path: Path, monitor: TransferMonitor = SILENT) -> ImageArrays:
    """Read Fashion-MNIST from the folder of its four files."""
    if not path.is_dir():
        raise SourceError(f"a folder with {FILE_NAMES[0]}.gz and the three other files is needed")
    folder = FolderReader(path)
    files = [f"{name}.gz" if (path / f"{name}.gz").exists() else name for name in FILE_NAMES]
    return _decode([folder.read(file, MAX_FILE_BYTES) for file in files])


def read_debian(path: Path, monitor: TransferMonitor = SILENT) -> ImageArrays:
    """Read Fashion-MNIST from Debian's package dataset-fashion-mnist."""
    files = [f"{DEBIAN_FOLDER}/{name}.gz" for name in FILE_NAMES]
    contents = read_deb(path, dict.fromkeys(files, MAX_FILE_BYTES))
    return _decode([contents[file] for file in files])


def _decode(contents: list[bytes]) -> ImageArrays:
    return ImageArrays(*(_read_idx(name, content) for name, content in zip(FILE_NAMES, contents, strict=True)))


def _read_idx(name: str, content: bytes) -> Pixels:
    """Read an idx file: a magic number, the size of each axis (four bytes each), then the values."""
    if content[:2] == b"\x1f\x8b":
        try:
            with gzip.open(io.BytesIO(content)) as file:
                content = file.read(MAX_FILE_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise SourceError(f"{name} cannot be decompressed: {short(error)}") from None
    axes = 3 if "images" in name else 1
    head = 4 + 4 * axes
    sizes = np.frombuffer(content[: min(head, len(content) // 4 * 4)], ">u4").tolist()
    if len(sizes) != 1 + axes or sizes[0] != (IMAGE_MAGIC if axes == 3 else LABEL_MAGIC):
        raise SourceError(f"{name} is not an idx file of {'images' if axes == 3 else 'labels'}")
    if len(content) - head != np.prod(sizes[1:], dtype=object):
        raise SourceError(f"{name} should hold {' x '.join(map(str, sizes[1:]))} bytes, it holds {len(content) - head}")
    values = np.frombuffer(content, np.uint8, offset=head).reshape(sizes[1:])
    return values[:, None] if axes == 3 else values
