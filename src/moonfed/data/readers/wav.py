"""Samples of .wav files: whole numbers of any width or floats, any rate and number of channels."""

from io import BytesIO
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

WHOLE, FLOAT, EXTENDED = 1, 3, 0xFFFE  # kinds of samples; of the last the header says further behind which it is
UNKNOWN = 0xFFFFFFFF  # what a program writes that does not know yet how long the sound will be
LOWEST, HIGHEST = 100, 1_000_000  # sampling rates that are believed


class Form(NamedTuple):
    """What a header says of the samples behind it."""

    kind: int
    channels: int
    rate: int
    wide: int  # bytes of a sample
    frames: int  # samples of each channel


def form_of(source: Path | bytes) -> Form:
    """Read the header of a sound."""
    with _opened(source) as file:
        return _header(file)


def samples_of(source: Path | bytes) -> NDArray[np.float32]:
    """Read a sound as numbers from -1 to 1, its channels averaged."""
    with _opened(source) as file:
        form = _header(file)
        raw = file.read(form.frames * form.wide * form.channels)
    if len(raw) < form.frames * form.wide * form.channels:
        raise EOFError("it ends too early")
    values = _numbers(raw, form)
    if not np.isfinite(values).all():
        raise ValueError("its samples are not finite")
    return values.reshape(-1, form.channels).mean(1)


def _opened(source: Path | bytes) -> BinaryIO:
    return BytesIO(source) if isinstance(source, bytes) else source.open("rb")


def _header(file: BinaryIO) -> Form:
    start = file.read(12)
    if len(start) < 12:
        raise EOFError("it ends too early")
    if start[:4] != b"RIFF" or start[8:] != b"WAVE":
        raise ValueError("no .wav file")
    told = b""
    while len(head := file.read(8)) == 8:
        size = int.from_bytes(head[4:], "little")
        if head[:4] == b"data":
            return _form(told, _left(file) if size == UNKNOWN else size)
        if head[:4] == b"fmt ":
            told = file.read(size)
            file.seek(size % 2, 1)
        else:
            file.seek(size + size % 2, 1)
    raise EOFError("it ends too early")


def _left(file: BinaryIO) -> int:
    here = file.tell()
    end = file.seek(0, 2)
    file.seek(here)
    return end - here


def _form(told: bytes, size: int) -> Form:
    if len(told) < 16:
        raise ValueError("its header does not say what its samples are")
    kind, channels, wide = (int.from_bytes(told[at : at + 2], "little") for at in (0, 2, 14))
    rate, wide = int.from_bytes(told[4:8], "little"), (wide + 7) // 8
    if kind == EXTENDED:
        kind = int.from_bytes(told[24:26], "little")
    if (kind, wide) not in [(WHOLE, 1), (WHOLE, 2), (WHOLE, 3), (WHOLE, 4), (FLOAT, 4), (FLOAT, 8)]:
        raise ValueError(f"samples of kind {kind} and {8 * wide} bits; PCM up to 32 bits and floats are read")
    if not channels:
        raise ValueError("it has no channel")
    if not LOWEST <= rate <= HIGHEST:
        raise ValueError(f"a sampling rate of {rate} Hz")
    frames = size // (wide * channels)
    if not frames:
        raise ValueError("no sound in it")
    return Form(kind, channels, rate, wide, frames)


def _numbers(raw: bytes, form: Form) -> NDArray[np.float32]:
    if form.kind == FLOAT:
        return np.frombuffer(raw, f"<f{form.wide}").astype(np.float32)
    if form.wide == 1:  # the only width without a sign
        values = np.frombuffer(raw, np.uint8).astype(np.float32) - 128
    elif form.wide == 3:
        parts = np.frombuffer(raw, np.uint8).reshape(-1, 3).astype(np.int32)
        values = ((parts[:, 0] << 8 | parts[:, 1] << 16 | parts[:, 2] << 24) >> 8).astype(np.float32)
    else:
        values = np.frombuffer(raw, f"<i{form.wide}").astype(np.float32)
    return values / np.float32(2.0 ** (8 * form.wide - 1))
