"""Small user data for tests: a table of people, images of two shades, tones."""

import csv
import wave
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

QUICK = ["--rounds", "2", "--epochs", "1"]


def write_csv(path: Path, header: Sequence[str], rows: Sequence[Sequence[object]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def people(path: Path, rows: int = 60) -> Path:
    """A table of three sites with different mixes of two classes, which differ by their weight."""
    made: list[list[object]] = []
    for k in range(rows):
        site, kind = "abc"[k % 3], "xy"[(k // 3) % 2 if k % 3 else 0]
        made.append([20 + k % 7, ("red", "blue", "")[k % 3], 10 * (kind == "y") + k % 5, kind, site])
    return write_csv(path, ["age", "colour", "weight", "kind", "site"], made)


def write_images(folder: Path, sizes: tuple[tuple[int, int], ...] = ((12, 9),), each: int = 8, mode: str = "L") -> Path:
    """Write dark and bright images, of these sizes (width, height) in turn."""
    for name, shade in (("dark", 40), ("bright", 200)):
        (folder / name).mkdir(parents=True)
        for k in range(each):
            size = sizes[k % len(sizes)]
            Image.new("L", size, shade + k).convert(mode).save(folder / name / f"{k}.png")
    return folder


def tone(path: Path, pitch: float, seconds: float = 0.3, rate: int = 8000, wide: int = 2, channels: int = 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    wave_ = np.sin(2 * np.pi * pitch * np.arange(int(seconds * rate)) / rate)
    top = 2 ** (8 * wide - 1) - 1
    values = np.repeat((wave_ * top * 0.9).astype(np.int64), channels)
    if wide == 1:
        raw = (values + 128).astype(np.uint8).tobytes()
    else:
        raw = b"".join(int(v).to_bytes(wide, "little", signed=True) for v in values)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(wide)
        file.setframerate(rate)
        file.writeframes(raw)


def four_clips(folder: Path) -> None:
    """Write two clips each of the classes a and b."""
    for k in range(4):
        tone(folder / "ab"[k % 2] / f"{k}.wav", 300)
