"""Sounds as log-mel spectrograms of one length, with torch alone."""

import wave
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from io import BytesIO
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from moonfed.core.errors import UserError
from moonfed.data.own.folder import Clip
from moonfed.data.own.found import Bad, Found
from moonfed.data.own.reading import Pace, Say, check_bytes
from moonfed.data.own.settings import SOUND, OwnSettings

SUFFIXES = (".wav",)
WINDOW, HOP, BANDS = 0.025, 0.010, 40  # seconds, seconds, bands of pitch
WHOLE = 0.9  # share of the sounds that are not cut, if no length is asked for
QUIET = 1e-6  # added before the logarithm
LONGEST = 60.0  # seconds that a sound is given if no length is asked for


def read_sounds(
    clips: Sequence[Clip], bad: Sequence[Bad], name: str, settings: OwnSettings, scheme: dict[str, Any] | None, say: Say
) -> Found:
    """Turn sounds into spectrograms of one shape: that of the scheme, or the one that suits them."""
    looks: dict[int, tuple[int, int]] = {}  # rate, samples
    wrong: dict[int, str] = {}
    for k, clip in enumerate(clips):
        try:
            looks[k] = _look(clip)
        except (wave.Error, EOFError, OSError, ValueError) as error:
            wrong[k] = _why(error)
    if not looks:
        broken = [Bad(clips[k].place, why) for k, why in wrong.items()] + list(bad)
        raise UserError(f"{name} holds no sound that can be read" + "".join(f"; {one}" for one in broken[:3]))
    agreed = scheme or _scheme(list(looks.values()), settings.seconds)
    check_bytes(name, 4 * len(clips) * int(np.prod(agreed["shape"])))
    made = np.zeros((len(clips), *agreed["shape"]), dtype=np.float32)
    pace = Pace(say, name, "sounds")
    for k in looks:
        try:
            heard = fitted(resampled(torch.from_numpy(_samples(clips[k])), looks[k][0], agreed["rate"]), agreed)
            made[k, 0] = spectrogram(heard, agreed["rate"]).numpy()
        except (wave.Error, EOFError, OSError, ValueError) as error:
            wrong[k] = _why(error)
        pace.at(k + 1, len(clips))
    parties = [clip.party or "" for clip in clips] if any(clip.party for clip in clips) else None
    labels = [clip.label or "" for clip in clips] if all(clip.label is not None for clip in clips) else None
    where = [clip.place for clip in clips]
    notes = _notes(name, looks, agreed)
    return Found(name, SOUND, made, labels, parties, lambda k: where[k], agreed, tuple(bad), notes).without(wrong)


def _scheme(looks: list[tuple[int, int]], seconds: float | None) -> dict[str, Any]:
    """Agree on the most frequent rate, and on a length that leaves nine of ten sounds whole."""
    rates = Counter(rate for rate, _ in looks)
    rate = min(rates, key=lambda r: (-rates[r], r))
    usual = float(np.quantile([samples / own for own, samples in looks], WHOLE))
    length = max(round(rate * (seconds or min(usual, LONGEST))), round(rate * WINDOW))
    bands, frames = spectrogram(torch.zeros(length), rate).shape
    return {"rate": rate, "samples": length, "shape": [1, bands, frames]}


def spectrogram(samples: Tensor, rate: int) -> Tensor:
    """Make the log-mel spectrogram of a sound: [band, frame]."""
    size = _size(rate)
    window = torch.hann_window(size, dtype=samples.dtype)
    seen = torch.stft(samples, size, max(1, round(rate * HOP)), window=window, center=True, return_complex=True)
    return (_bands(rate).to(samples.dtype) @ seen.abs().square() + QUIET).log()


def _size(rate: int) -> int:
    """The window in samples: the next power of two."""
    return max(16, 2 ** int(np.ceil(np.log2(max(2.0, rate * WINDOW)))))


@lru_cache(maxsize=8)
def _bands(rate: int) -> Tensor:
    """Make triangles over the frequencies, evenly spaced in mel: [band, frequency]."""
    bins = _size(rate) // 2 + 1
    bands = min(BANDS, bins // 2)
    top = 2595 * np.log10(1 + rate / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, top, bands + 2) / 2595) - 1)
    at = np.linspace(0, rate / 2, bins)
    least = rate / 2 / (bins - 1)  # no triangle is narrower than one frequency to each side
    low, middle, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rise, fall = np.maximum(middle - low, least), np.maximum(high - middle, least)
    up, down = (at - middle) / rise + 1, (middle - at) / fall + 1
    return torch.from_numpy(np.clip(np.minimum(up, down), 0, None)).float()


def resampled(samples: Tensor, rate: int, to: int) -> Tensor:
    """Bring a sound to another rate by cutting off or filling up its spectrum."""
    if rate == to or not len(samples):
        return samples
    length = max(1, round(len(samples) * to / rate))
    spectrum = torch.fft.rfft(samples)
    return torch.fft.irfft(spectrum[: length // 2 + 1], n=length) * (length / len(samples))


def fitted(samples: Tensor, scheme: dict[str, Any]) -> Tensor:
    """Cut a sound around its middle, or put silence before and behind it."""
    over = len(samples) - scheme["samples"]
    if over >= 0:
        return samples[over // 2 : over // 2 + scheme["samples"]]
    return torch.nn.functional.pad(samples, (-over // 2, -over - -over // 2))


def _opened(clip: Clip) -> wave.Wave_read:
    return wave.open(BytesIO(clip.source) if isinstance(clip.source, bytes) else str(clip.source), "rb")


def _look(clip: Clip) -> tuple[int, int]:
    with _opened(clip) as sound:
        if not sound.getnframes():
            raise ValueError("no sound in it")
        return sound.getframerate(), sound.getnframes()


def _samples(clip: Clip) -> NDArray[np.float32]:
    """Read a sound as numbers from -1 to 1, its channels averaged."""
    with _opened(clip) as sound:
        wide, channels, said = sound.getsampwidth(), sound.getnchannels(), sound.getnframes()
        raw = sound.readframes(said)
    if len(raw) < said * wide * channels:
        raise EOFError("it ends too early")
    if wide == 1:  # the only width without a sign
        values = np.frombuffer(raw, np.uint8).astype(np.float32) - 128
    elif wide == 3:
        parts = np.frombuffer(raw, np.uint8).reshape(-1, 3).astype(np.int32)
        values = ((parts[:, 0] << 8 | parts[:, 1] << 16 | parts[:, 2] << 24) >> 8).astype(np.float32)
    else:
        values = np.frombuffer(raw, {2: "<i2", 4: "<i4"}[wide]).astype(np.float32)
    return values.reshape(-1, channels).mean(1) / 2.0 ** (8 * wide - 1)


def _notes(name: str, looks: dict[int, tuple[int, int]], scheme: dict[str, Any]) -> tuple[str, ...]:
    lengths = [samples / rate for rate, samples in looks.values()]
    seconds = scheme["samples"] / scheme["rate"]
    cut = sum(length > seconds + 1e-9 for length in lengths)
    rates = len({rate for rate, _ in looks.values()})
    other = f"; {rates} sampling rates brought to {scheme['rate']} Hz" if rates > 1 else ""
    if min(lengths) == max(lengths) == seconds and rates == 1:
        return ()
    return (
        f"{name}: sounds of {min(lengths):.2f} to {max(lengths):.2f} s made {seconds:.2f} s long, {cut} of "
        f"{len(lengths)} cut, the others filled up with silence{other}; --seconds sets another length",
    )


def _why(error: BaseException) -> str:
    text = str(error).splitlines()[0][:80] if str(error) else "it ends too early"
    return f"unreadable: {text}" + ("; only PCM is read" if "unknown format" in text else "")
