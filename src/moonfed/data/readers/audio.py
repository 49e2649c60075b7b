"""Sounds as log-mel spectrograms of one length."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from moonfed.core.errors import UserError
from moonfed.data.readers.folders import Clip
from moonfed.data.readers.limits import Pace, Say, check_bytes
from moonfed.data.readers.options import SOUND, ReaderOptions
from moonfed.data.readers.raw_rows import Bad, Found
from moonfed.data.readers.wav import form_of, samples_of
from moonfed.data.spectrogram import Floats, log_mel, sizes

SUFFIXES = (".wav",)
WINDOW, HOP, BANDS = 0.025, 0.010, 40  # seconds, seconds, bands of pitch
WHOLE = 0.9  # share of the sounds that are not cut, if no length is asked for
LONGEST = 60.0  # seconds that a sound is given if no length is asked for


def read_sounds(
    clips: Sequence[Clip],
    bad: Sequence[Bad],
    name: str,
    settings: ReaderOptions,
    scheme: dict[str, Any] | None,
    say: Say,
) -> Found:
    """Turn sounds into spectrograms of one shape: that of the scheme, or the one that suits them."""
    looks: dict[int, tuple[int, int]] = {}  # rate, samples
    wrong: dict[int, str] = {}
    for k, clip in enumerate(clips):
        try:
            form = form_of(clip.source)
            looks[k] = form.rate, form.frames
        except (EOFError, OSError, ValueError) as error:
            wrong[k] = _why(error)
    if not looks:
        broken = [Bad(clips[k].place, why) for k, why in wrong.items()] + list(bad)
        raise UserError(f"{name} holds no sound that can be read" + "".join(f"; {one}" for one in broken[:3]))
    agreed = scheme or _scheme(list(looks.values()), settings.seconds)
    if "window" not in agreed:
        raise UserError("this model was trained on sounds as an earlier moonfed made them; train it again")
    check_bytes(name, 4 * len(clips) * int(np.prod(agreed["shape"])))
    made = np.zeros((len(clips), *agreed["shape"]), dtype=np.float32)
    pace = Pace(say, name, "sounds")
    for k in looks:
        try:
            heard = resampled(torch.from_numpy(samples_of(clips[k].source)), looks[k][0], agreed["rate"])
            made[k, 0] = spectrogram(fitted(heard, agreed), agreed)
        except (EOFError, OSError, ValueError) as error:
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
    window, hop = sizes(rate, WINDOW, HOP)
    length = max(round(rate * (seconds or min(usual, LONGEST))), window)
    shape = [1, min(BANDS, window // 4), 1 + (length - window) // hop]
    return {"rate": rate, "samples": length, "shape": shape, "window": WINDOW, "hop": HOP}


def spectrogram(samples: Tensor, scheme: dict[str, Any]) -> Floats:
    """Make the spectrogram of a sound that has the agreed rate and length: [band, frame]."""
    _, bands, frames = scheme["shape"]
    return log_mel(samples.numpy(), scheme["rate"], bands, frames, scheme["window"], scheme["hop"])


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
    return f"unreadable: {text}"
