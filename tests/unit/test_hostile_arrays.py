"""An .npz file that lies, bursts or hides something is refused in one line, before it is decompressed."""

import struct
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from commands import refuse
from numpy.lib import format as npy

from moonfed.core.errors import UserError
from moonfed.data.readers import npz_archive
from moonfed.data.readers.npz_archive import read_arrays


def stored(array: np.ndarray) -> bytes:
    """An array as the member of an .npz file."""
    file = BytesIO()
    npy.write_array(file, array, allow_pickle=True)
    return file.getvalue()


X, Y = stored(np.arange(80.0).reshape(40, 2)), stored(np.arange(40) % 2)


def member(header: str, content: bytes = bytes(640), version: bytes = b"\1\0") -> bytes:
    """A member with a header of one's own."""
    text = header.encode("latin1").ljust(54) + b"\n"
    return b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text + content


def shaped(shape: object, kind: str = "<f8", content: bytes = bytes(640)) -> bytes:
    """A member that claims a shape and a type."""
    return member(f"{{'descr':'{kind}','fortran_order':False,'shape':{shape}}}", content)


def archive(path: Path, **members: bytes) -> None:
    """Write members into an .npz file."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in ({"x": X, "y": Y} | members).items():
            file.writestr(f"{name}.npy", content)


@pytest.mark.parametrize(
    ("x", "line"),
    [
        (shaped((1_000_000, 1_000_000)), "x is 8,000,000,000,000 bytes by its shape (1000000, 1000000)"),
        (shaped((40, 150_000_000), content=bytes(3_000_000)), "x is 48,000,000,000 bytes by its shape"),
        (shaped((41, 2)), "x is 656 bytes by its shape (41, 2), the file has 640"),
        (shaped((2**70, 2)), "bytes by its shape (1180591620717411303424, 2)"),
        (shaped((2**32, 2**32)), "bytes by its shape (4294967296, 4294967296)"),
        (shaped((-1, 2)), "the shape (-1, 2), which is no array"),
        (shaped((4.5, 2)), "x has a broken header: shape is not valid"),
        (shaped((1,) * 70), "maximum supported dimension"),
        (shaped((2**30, 2**20), "|S0", b""), "x has the type |S0"),
        (shaped((40, 2), "zz"), "x has a broken header: descr is not a valid dtype"),
        (shaped((40, 2), "<f8\0"), "x has a broken header"),
        (member("{'descr':'<f8','fortran_order':"), "x has a broken header"),
        (member("__import__('os').mkdir('made')"), "x has a broken header"),
        (member("(" * 9000), "x has a broken header"),
        (member("-" * 9000 + "1"), "x has a broken header"),
        (member("", version=b"\x09\x00"), "version 9.0 of the format"),
        (b"\x93NUMPY\2\0" + struct.pack("<I", 2**31) + bytes(100), "x has a broken header"),
        (X[:-100], "x is 640 bytes by its shape (40, 2), the file has 540"),
        (X[:9], "x has a broken header"),
        (b"", "x has a broken header"),
        (b"\x80\x04K\x01.", "x has a broken header"),
        (stored(np.array([[{}, {}]], dtype=object)), "only plain arrays are supported"),
        (stored(np.zeros((40, 2), complex)), "x needs numbers"),
        (stored(np.zeros((40, 2), "M8[s]")), "x needs numbers"),
        (stored(np.zeros((40, 2), [("a", "f8")])), "x needs numbers"),
        (stored(np.full((40, 2), np.longdouble("1e4000"))), "x is not finite"),
        (stored(np.zeros((2, 10_000_001), np.uint8)), "x has 10,000,001 values in each row, at most 10,000,000"),
    ],
    ids=range(27),
)  # fmt: skip
def test_an_array_that_is_not_what_it_says_is_refused(x: bytes, line: str, place: Path):
    archive(place / "a.npz", x=x)
    assert line in refuse(place, "run", "--data", "a.npz")


@pytest.mark.parametrize(
    ("y", "line"),
    [
        (stored(np.array([b"\xff", b"a"] * 20)), "y has bytes that are not UTF-8"),
        (shaped((40,), "<U1", np.array([0xDC80, 0x61] * 20, "<u4").tobytes()), "y has text that is not Unicode"),
        (shaped((40,), "<U1", np.array([0xFFFFFFFF, 0x61] * 20, "<u4").tobytes()), "y has text that is not Unicode"),
        (shaped((40,), ">U1", np.array([0x110000, 0x61] * 20, ">u4").tobytes()), "y has text that is not Unicode"),
        (shaped((2**40,), "|V0", b""), "y has the type |V0"),
        (stored(np.array(["2020-01-01"] * 40, "M8[D]")), "y needs integers or strings"),
        (stored(np.zeros(40, [("a", int)])), "y needs integers or strings"),
        (stored(np.array(3)), "y needs one value for each of the 40 rows"),
    ],
    ids=range(8),
)
def test_labels_that_are_no_text_are_refused(y: bytes, line: str, place: Path):
    archive(place / "a.npz", y=y)
    assert line in refuse(place, "run", "--data", "a.npz")


def changed(at: int, inside: int, value: bytes) -> Callable[[bytearray], bytes]:
    """Change the first member's two entries in a zip file: the local one and the one in the directory."""

    def change(content: bytearray) -> bytes:
        for place in (inside, content.index(b"PK\1\2") + at):
            content[place : place + len(value)] = value
        return bytes(content)

    return change


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (changed(8, 6, b"\x01"), "x is encrypted"),
        (changed(8, 6, b"\x41"), "x is encrypted"),
        (changed(8, 6, b"\x20"), "patched data"),
        (changed(10, 8, b"\x61\0"), "compression method is not supported"),
        (changed(6, 4, b"\x63"), "zip file version 9.9"),
        (changed(24, 22, struct.pack("<I", 300)), "cannot be read as .npz"),
        (lambda content: bytes(content[:-30]), "not a zip file"),
        (lambda content: bytes(content[50:]), "cannot be read as .npz"),
        (lambda content: bytes(content[:60] + b"\xff" * 20 + content[80:]), "cannot be read as .npz"),
        (lambda content: b"", "a.npz is empty"),
        (lambda content: bytes(1000), "not a zip file"),
        (lambda content: X, "not a zip file"),
        (lambda content: b"\x80\x04K\x01.", "not a zip file"),
    ],
    ids=range(13),
)
def test_a_damaged_archive_is_refused(change: Callable[[bytearray], bytes], line: str, place: Path):
    archive(place / "a.npz")
    (place / "a.npz").write_bytes(change(bytearray((place / "a.npz").read_bytes())))
    assert line in refuse(place, "run", "--data", "a.npz")


def test_a_decompression_bomb_is_refused_before_it_is_decompressed(place: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(npz_archive, "RATIO_FREE_BYTES", 1_000_000)
    archive(place / "a.npz", x=shaped((40, 50_000), content=bytes(16_000_000)))
    line = refuse(place, "run", "--data", "a.npz")
    assert "16,000,000 bytes, which looks like a decompression bomb" in line
    monkeypatch.setattr(npz_archive, "RATIO_FREE_BYTES", 100_000_000)
    assert read_arrays(place / "a.npz", ["x"])["x"].shape == (40, 50_000)


def test_only_the_arrays_that_are_used_are_read_and_an_error_lists_a_few_of_the_others(place: Path):
    archive(place / "a.npz", **{f"other{k}": b"no array" for k in range(50)})
    arrays = read_arrays(place / "a.npz", ["x", "y", "z"])
    assert arrays["x"].shape == (40, 2)
    assert "z" not in arrays
    assert refuse(place, "run", "--data", "a.npz", "--label", "kind").count("other") < 21
    with pytest.raises(UserError, match="other7 has a broken header"):
        read_arrays(place / "a.npz", ["other7"])
