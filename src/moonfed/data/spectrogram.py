"""Log-mel spectrograms: the loudness of each frequency band over time."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

WINDOW, HOP = 0.032, 0.020  # seconds; the defaults
SILENCE = 1e-6  # power relative to full scale, added before the logarithm
MIN_WINDOW = 16  # samples
BLOCK_FRAMES = 2048  # frames computed at once: bounds the memory for long clips

Samples = NDArray[Any]
Floats = NDArray[np.float32]


def log_mel(samples: Samples, rate: int, bands: int, frames: int, window: float = WINDOW, hop: float = HOP) -> Floats:
    """Compute the natural logarithm of a clip's mel spectrogram: [band, frame].

    samples range from -1 to 1. Samples beyond the last frame are cut; a short clip is padded with silence at its end.
    """
    width, step = window_samples(rate, window, hop)
    padded = np.zeros(width + step * (frames - 1), dtype=np.float64)
    padded[: min(len(samples), len(padded))] = samples[: len(padded)]
    windows = np.lib.stride_tricks.sliding_window_view(padded, width)[::step][:frames]
    filters, taper = mel_filters(rate, width, bands).T, np.hanning(width)
    blocks: list[Floats] = []
    for start in range(0, frames, BLOCK_FRAMES):
        power = np.abs(np.fft.rfft(windows[start : start + BLOCK_FRAMES] * taper, axis=1)) ** 2 / width
        blocks.append(np.log(power @ filters + SILENCE).astype(np.float32))
    return np.concatenate(blocks).T


def window_samples(rate: int, window: float = WINDOW, hop: float = HOP) -> tuple[int, int]:
    """Return the number of samples per window, and between the starts of two windows."""
    return max(MIN_WINDOW, int(window * rate)), max(1, int(hop * rate))


@cache
def mel_filters(rate: int, window: int, bands: int) -> NDArray[np.float64]:
    """Make triangular filters [band, bin] that overlap by half, evenly spaced on the mel scale from 0 to rate / 2.

    Each filter extends at least one bin to each side of its centre: a narrower one between two bins would be zero.
    """
    edges = np.linspace(0, _mel(rate / 2), bands + 2)
    hertz = 700 * (10 ** (edges / 2595) - 1)
    bins = np.linspace(0, rate / 2, window // 2 + 1)
    centre, bin_width = hertz[1:-1], bins[1]
    low, high = np.minimum(hertz[:-2], centre - bin_width), np.maximum(hertz[2:], centre + bin_width)
    rise = (bins - low[:, None]) / (centre - low)[:, None]
    fall = (high[:, None] - bins) / (high - centre)[:, None]
    return np.maximum(0, np.minimum(rise, fall))


def _mel(hertz: float) -> float:
    return 2595 * float(np.log10(1 + hertz / 700))
