"""Sounds as pictures: how loud each band of pitch is from moment to moment."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

WINDOW, HOP = 0.032, 0.020  # seconds
QUIET = 1e-6  # of full scale, squared: what is below is silence

Samples = NDArray[Any]
Floats = NDArray[np.float32]


def log_mel(samples: Samples, rate: int, bands: int, frames: int) -> Floats:
    """Make the spectrogram of a sound on the mel scale, in powers of e: [band, frame], cut off or filled up.

    samples go from -1 to 1. A sound that is shorter than the frames has silence behind it.
    """
    window, hop = int(WINDOW * rate), int(HOP * rate)
    room = np.zeros(window + hop * (frames - 1), dtype=np.float64)
    room[: min(len(samples), len(room))] = samples[: len(room)]
    pieces = np.lib.stride_tricks.sliding_window_view(room, window)[::hop][:frames]
    power = np.abs(np.fft.rfft(pieces * np.hanning(window), axis=1)) ** 2 / window
    return np.log(power @ mel_filters(rate, window, bands).T + QUIET).T.astype(np.float32)


@cache
def mel_filters(rate: int, window: int, bands: int) -> NDArray[np.float64]:
    """Make triangles that overlap by half, evenly spaced on the mel scale from 0 to half the rate: [band, bin]."""
    edges = np.linspace(0, _mel(rate / 2), bands + 2)
    hertz = 700 * (10 ** (edges / 2595) - 1)
    bins = np.linspace(0, rate / 2, window // 2 + 1)
    rise = (bins - hertz[:-2, None]) / (hertz[1:-1] - hertz[:-2])[:, None]
    fall = (hertz[2:, None] - bins) / (hertz[2:] - hertz[1:-1])[:, None]
    return np.maximum(0, np.minimum(rise, fall))


def _mel(hertz: float) -> float:
    return 2595 * float(np.log10(1 + hertz / 700))
