"""Reads .wav files: PCM of any width or floats, any sampling rate and number of channels."""

from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from moonfed.data.readers.folders import media_source

PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE  # sample formats; for the last the format follows later in the header
UNKNOWN_SIZE = 0xFFFFFFFF  # written by programs that stream a file of unknown length
FORMAT_BYTES = 40  # of the chunk that describes the samples
MAX_BYTES = 500_000_000  # of samples: 43 minutes of 16-bit stereo at 48 kHz
MIN_RATE, MAX_RATE = 100, 1_000_000  # plausible sampling rates in Hz


class WavHeader(NamedTuple):
    """The header of a .wav file."""

    format: int
    channels: int
    rate: int
    width: int  # bytes per sample
    frames: int  # samples per channel


def read_header(source: Path | bytes) -> WavHeader:
    """Read the header of a .wav file."""
    with _open(source) as file:
        return _find_header(file)


def read_samples(source: Path | bytes) -> NDArray[np.float32]:
    """Read samples from -1 to 1, averaged over the channels."""
    with _open(source) as file:
        header = _find_header(file)
        size = header.frames * header.width * header.channels
        if size > _remaining_bytes(file):
            raise EOFError("the file is truncated")
        if size > MAX_BYTES:
            raise ValueError(f"it has {size:,} bytes of samples, more than {MAX_BYTES:,}; cut it into shorter clips")
        raw = file.read(size)
    values = _decode(raw, header)
    if not np.isfinite(values).all():
        raise ValueError("its samples are not finite")
    return values.reshape(-1, header.channels).mean(1)


def _open(source: Path | bytes) -> BinaryIO:
    opened = media_source(source)
    return opened.open("rb") if isinstance(opened, Path) else opened


def _find_header(file: BinaryIO) -> WavHeader:
    """Read the chunks up to the samples."""
    start = file.read(12)
    if len(start) < 12:
        raise EOFError("the file is truncated")
    if start[:4] != b"RIFF" or start[8:] != b"WAVE":
        raise ValueError("not a .wav file")
    format_chunk = b""
    while len(head := file.read(8)) == 8:
        size = int.from_bytes(head[4:], "little")
        if head[:4] == b"data":
            return _parse_format(format_chunk, _remaining_bytes(file) if size == UNKNOWN_SIZE else size)
        if head[:4] == b"fmt ":
            format_chunk = file.read(min(size, FORMAT_BYTES))
            file.seek(size - len(format_chunk) + size % 2, 1)
        else:
            file.seek(size + size % 2, 1)
    raise EOFError("the file is truncated")


def _remaining_bytes(file: BinaryIO) -> int:
    position = file.tell()
    end = file.seek(0, 2)
    file.seek(position)
    return end - position


def _parse_format(chunk: bytes, data_bytes: int) -> WavHeader:
    if len(chunk) < 16:
        raise ValueError("its header does not describe its samples")
    kind, channels, bits = (int.from_bytes(chunk[at : at + 2], "little") for at in (0, 2, 14))
    rate, width = int.from_bytes(chunk[4:8], "little"), (bits + 7) // 8
    if kind == EXTENSIBLE:
        kind = int.from_bytes(chunk[24:26], "little")
    if (kind, width) not in [(PCM, 1), (PCM, 2), (PCM, 3), (PCM, 4), (FLOAT, 4), (FLOAT, 8)]:
        raise ValueError(f"samples of format {kind} and {8 * width} bits; PCM up to 32 bits and floats are supported")
    if not channels:
        raise ValueError("it has no channels")
    if not MIN_RATE <= rate <= MAX_RATE:
        raise ValueError(f"its sampling rate is {rate} Hz")
    frames = data_bytes // (width * channels)
    if not frames:
        raise ValueError("it has no samples")
    return WavHeader(kind, channels, rate, width, frames)


def _decode(raw: bytes, header: WavHeader) -> NDArray[np.float32]:
    if header.format == FLOAT:
        with np.errstate(over="ignore"):  # becomes infinite, which is refused
            return np.frombuffer(raw, f"<f{header.width}").astype(np.float32)
    if header.width == 1:  # the only unsigned width
        values = np.frombuffer(raw, np.uint8).astype(np.float32) - 128
    elif header.width == 3:
        parts = np.frombuffer(raw, np.uint8).reshape(-1, 3).astype(np.int32)
        values = ((parts[:, 0] << 8 | parts[:, 1] << 16 | parts[:, 2] << 24) >> 8).astype(np.float32)
    else:
        values = np.frombuffer(raw, f"<i{header.width}").astype(np.float32)
    return values / np.float32(2.0 ** (8 * header.width - 1))
