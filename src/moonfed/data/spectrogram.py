"""Sounds as pictures: how loud each band of pitch is from moment to moment."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

WINDOW, HOP = 0.032, 0.020  # seconds, unless something else is asked for
QUIET = 1e-6  # of full scale, squared: what is below is silence
LEAST = 16  # samples of a window
BLOCK = 2048  # frames that are looked at together: a long sound takes no more memory than a short one

Samples = NDArray[Any]
Floats = NDArray[np.float32]


def log_mel(samples: Samples, rate: int, bands: int, frames: int, window: float = WINDOW, hop: float = HOP) -> Floats:
    """Make the spectrogram of a sound on the mel scale, in powers of e: [band, frame], cut off or filled up.

    samples go from -1 to 1. A sound that is shorter than the frames has silence behind it.
    """
    wide, step = sizes(rate, window, hop)
    room = np.zeros(wide + step * (frames - 1), dtype=np.float64)
    room[: min(len(samples), len(room))] = samples[: len(room)]
    pieces = np.lib.stride_tricks.sliding_window_view(room, wide)[::step][:frames]
    filters, shape = mel_filters(rate, wide, bands).T, np.hanning(wide)
    made: list[Floats] = []
    for start in range(0, frames, BLOCK):
        power = np.abs(np.fft.rfft(pieces[start : start + BLOCK] * shape, axis=1)) ** 2 / wide
        made.append(np.log(power @ filters + QUIET).astype(np.float32))
    return np.concatenate(made).T


def sizes(rate: int, window: float = WINDOW, hop: float = HOP) -> tuple[int, int]:
    """Say how many samples a window has, and how many lie between two."""
    return max(LEAST, int(window * rate)), max(1, int(hop * rate))


@cache
def mel_filters(rate: int, window: int, bands: int) -> NDArray[np.float64]:
    """Make triangles that overlap by half, evenly spaced on the mel scale from 0 to half the rate: [band, bin].

    None is narrower than one bin to each side: a band between two bins would hear nothing.
    """
    edges = np.linspace(0, _mel(rate / 2), bands + 2)
    hertz = 700 * (10 ** (edges / 2595) - 1)
    bins = np.linspace(0, rate / 2, window // 2 + 1)
    middle, least = hertz[1:-1], bins[1]
    low, high = np.minimum(hertz[:-2], middle - least), np.maximum(hertz[2:], middle + least)
    rise = (bins - low[:, None]) / (middle - low)[:, None]
    fall = (high[:, None] - bins) / (high - middle)[:, None]
    return np.maximum(0, np.minimum(rise, fall))


def _mel(hertz: float) -> float:
    return 2595 * float(np.log10(1 + hertz / 700))
