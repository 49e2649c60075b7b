"""Images, audio clips and items of torch data sets that are not what they say: named, each in one line."""

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import refuse
from PIL import Image
from user_rows import four_clips, write_images

from moonfed.core.errors import UserError
from moonfed.data.readers import from_torch


def png(*chunks: tuple[bytes, bytes], width: int = 8, height: int = 8) -> bytes:
    """An image with chunks of one's own before its pixels."""
    head = (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    parts = [head, *chunks, (b"IDAT", zlib.compress(bytes(100))), (b"IEND", b"")]
    made = [struct.pack(">I", len(c)) + kind + c + struct.pack(">I", zlib.crc32(kind + c)) for kind, c in parts]
    return b"\x89PNG\r\n\x1a\n" + b"".join(made)


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n{loop}\n"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not a readable image"),
        (b"\0" * 1000, "not a readable image"),
        (b"\x89PNG\r\n\x1a\n", "unreadable"),
        (png(width=60_000, height=60_000), "unreadable"),
        (png(width=0), "unreadable"),
        (png()[:45], "unreadable"),
        (png((b"zTXt", b"k\0\0" + zlib.compress(bytes(50_000_000)))), "unreadable: Decompressed data too large"),
        (EPS, "not a readable image"),  # would start Ghostscript
        (b"GIF89a" + bytes(4), "unreadable"),
        (b"BM" + bytes(60), "unreadable"),
        (b"RIFF\x10\0\0\0WEBPVP8 ", "unreadable"),
        (b"II*\0" + b"\xff" * 40, "unreadable"),
        (b"\xff\xd8\xff\xe0" + bytes(100), "unreadable"),
    ],
    ids=range(13),
)
def test_an_image_that_is_none_is_named(content: bytes, reason: str, place: Path):
    write_images(place / "shades")
    (place / "shades" / "dark" / "odd.png").write_bytes(content)
    line = refuse(place, "run", "--data", "shades")
    assert "shades has a bad row of 17: dark/odd.png (" in line
    assert reason in line or "not a readable image" in line


def test_an_image_whose_pixels_are_no_integers_is_named(place: Path):
    write_images(place / "shades")
    Image.new("F", (9, 9)).save(place / "float.tif")
    (place / "float.tif").rename(place / "shades" / "dark" / "odd.png")
    assert "dark/odd.png (unreadable: its pixels are not integers)" in refuse(place, "run", "--data", "shades")


def wav(data: bytes = bytes(1600), *, size: int | None = None, channels: int = 1, rate: int = 8000, bits: int = 16,
        kind: int = 1, described: int = 16) -> bytes:  # fmt: skip
    """A .wav file with a header of one's own."""
    form = struct.pack("<HHIIHH", kind, channels, rate, 0, 0, bits)
    head = b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt " + struct.pack("<I", described) + form
    return head + b"data" + struct.pack("<I", len(data) if size is None else size) + data


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file is truncated"),
        (b"RIFF" + bytes(4) + b"WAVE" + b"junk\0\0\0\0" * 100_000, "the file is truncated"),
        (wav(size=2**31), "the file is truncated"),
        (wav(size=0xFFFFFFF0), "the file is truncated"),
        (wav(described=0xFFFFFFF0), "the file is truncated"),
        (wav(channels=0), "it has no channels"),
        (wav(rate=0), "its sampling rate is 0 Hz"),
        (wav(rate=2**31), "its sampling rate is 2147483648 Hz"),
        (wav(bits=0), "samples of format 1 and 0 bits"),
        (wav(kind=6, bits=8), "samples of format 6"),
        (wav(b""), "it has no samples"),
        (wav(struct.pack("<f", float("nan")) * 800, kind=3, bits=32), "its samples are not finite"),
        (wav(struct.pack("<d", 1e300) * 800, kind=3, bits=64), "its samples are not finite"),
        (b"ID3" + bytes(100), "not a .wav file"),
        (b"RIFX" + bytes(100), "not a .wav file"),
    ],
    ids=range(15),
)
def test_a_clip_that_is_none_is_named(content: bytes, reason: str, place: Path):
    four_clips(place / "sounds")
    (place / "sounds" / "a" / "odd.wav").write_bytes(content)
    assert f"sounds has a bad row of 5: a/odd.wav (unreadable: {reason}" in refuse(place, "run", "--data", "sounds")


def test_a_clip_of_gigabytes_is_named_and_not_read(place: Path):
    four_clips(place / "sounds")
    folder = place / "sounds" / "a"
    with (folder / "odd.wav").open("wb") as file:
        file.write(wav(b"", size=600_000_000))
        file.truncate(700_000_000)
    (place / "elsewhere").mkdir()  # what is refused is not hashed
    line = refuse(place / "elsewhere", "run", "--data", place / "sounds")
    assert "a/odd.wav (unreadable: it has 600,000,000 bytes of samples, more than 500,000,000" in line


def items(input_of: Callable[[int], Any], label_of: Callable[[int], Any] = lambda k: k % 2) -> list[Any]:
    """A data set of eight items."""
    return [(input_of(k), label_of(k)) for k in range(8)]


def zeros(_: int) -> torch.Tensor:
    """An input."""
    return torch.zeros(2)


@pytest.mark.parametrize(
    ("dataset", "line"),
    [
        ([], "data is empty"),
        (3, "data needs len() and items by number, as a map-style torch data set, got int"),
        (None, "got NoneType"),
        ((item for item in [1]), "got generator"),
        ({"a": 1}, "got dict"),
        ([1, 2], "data item 0 needs (input, label) or (input, label, party), got int"),
        ([(1, 2, 3, 4)], "got tuple of 4"),
        (items(zeros, lambda _: None), "needs an integer or a string as label or party, got NoneType"),
        (items(zeros, lambda _: float("nan")), "data row 0 (y is empty)"),
        (items(zeros, lambda _: 0.5), "needs integers or strings, got 0.5"),
        (items(zeros, lambda _: [1]), "got list of 1"),
        (items(zeros, lambda k: "a\udc80" if k % 2 else "b"), "y has text that is not Unicode"),
        (items(zeros, lambda _: 0), "data has only one class"),
        (items(lambda k: torch.zeros(2 + k)), "all items need the same shape"),
        (items(lambda _: [[1], [1, 2]]), "data item 0 needs a dense array of numbers as input"),
        (items(lambda _: torch.zeros(2).to_sparse()), "data item 0 needs a dense array of numbers"),
        (items(lambda _: torch.zeros(2, device="meta")), "data item 0 needs a dense array of numbers"),
        (items(lambda _: "text"), "data x needs numbers"),
        (items(lambda _: object()), "data x needs numbers"),
        (items(lambda _: np.zeros(2, "M8[s]")), "data x needs numbers"),
        (items(lambda _: torch.full((2,), float("inf"))), "data row 0 (x is not finite)"),
        (items(lambda _: torch.zeros(0)), "data x is empty"),
    ],
    ids=range(22),
)
def test_a_torch_data_set_that_is_none_is_refused(dataset: Any, line: str):
    with pytest.raises(UserError) as error:
        from_torch(dataset)
    assert line in str(error.value)
    assert "\n" not in str(error.value)


def test_parties_that_are_no_list_are_refused():
    with pytest.raises(UserError, match="data needs a party for each of its 8 items, got int"):
        from_torch(items(zeros), party=3)  # type: ignore[arg-type]
