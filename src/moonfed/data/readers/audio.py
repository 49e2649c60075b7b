"""Reads audio clips as log-mel spectrograms of one length."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from moonfed.core.errors import UserError
from moonfed.data.readers.folders import MediaFile, media_rows, nothing_readable_error, unreadable_reason
from moonfed.data.readers.limits import ReadProgress, check_memory
from moonfed.data.readers.options import AUDIO, ReaderOptions
from moonfed.data.readers.raw_rows import BadRow, RawRows
from moonfed.data.readers.wav import WavHeader, read_header, read_samples
from moonfed.data.spectrogram import Floats, log_mel, window_samples

SUFFIXES = (".wav",)
WINDOW, HOP, BANDS = 0.025, 0.010, 40  # seconds, seconds, mel bands
UNCUT_SHARE = 0.9  # share of the clips that the default length covers
MAX_DEFAULT_SECONDS = 60.0
_UNREADABLE = (EOFError, OSError, ValueError)


def read_audio(
    media: Sequence[MediaFile], bad: Sequence[BadRow], name: str, options: ReaderOptions, schema: dict[str, Any] | None
) -> RawRows:
    """Turn clips into spectrograms of one shape: that of the schema, or one that suits most clips."""
    headers: dict[int, WavHeader] = {}
    unreadable: dict[int, str] = {}
    for k, file in enumerate(media):
        try:
            headers[k] = read_header(file.source)
        except _UNREADABLE as error:
            unreadable[k] = unreadable_reason(error)
    if not headers:
        raise nothing_readable_error(name, "audio clip", media, bad, unreadable)
    schema = schema or _choose_schema(list(headers.values()), options.seconds)
    if "window" not in schema:
        raise UserError("this model was trained on spectrograms of an earlier version of moonfed; train it again")
    check_memory(name, 4 * len(media) * int(np.prod(schema["shape"])))
    content = np.zeros((len(media), *schema["shape"]), dtype=np.float32)
    progress = ReadProgress(name, "audio clips")
    for k, header in headers.items():
        try:
            samples = resample(torch.from_numpy(read_samples(media[k].source)), header.rate, schema["rate"])
            content[k, 0] = spectrogram(fit_length(samples, schema["samples"]), schema)
        except _UNREADABLE as error:
            unreadable[k] = unreadable_reason(error)
        progress.update(k + 1, len(media))
    notes = _conversion_notes(name, list(headers.values()), schema)
    return media_rows(media, AUDIO, content, name, schema, bad, unreadable, notes)


def _choose_schema(headers: list[WavHeader], seconds: float | None) -> dict[str, Any]:
    """Choose the most frequent sampling rate, and a length that covers nine of ten clips."""
    rates = Counter(header.rate for header in headers)
    rate = min(rates, key=lambda r: (-rates[r], r))
    usual = float(np.quantile([header.frames / header.rate for header in headers], UNCUT_SHARE))
    window, hop = window_samples(rate, WINDOW, HOP)
    length = max(round(rate * (seconds or min(usual, MAX_DEFAULT_SECONDS))), window)
    shape = [1, min(BANDS, window // 4), 1 + (length - window) // hop]
    return {"rate": rate, "samples": length, "shape": shape, "window": WINDOW, "hop": HOP}


def spectrogram(samples: Tensor, schema: dict[str, Any]) -> Floats:
    """Compute the spectrogram [band, frame] of samples that have the schema's rate and length."""
    _, bands, frames = schema["shape"]
    return log_mel(samples.numpy(), schema["rate"], bands, frames, schema["window"], schema["hop"])


def resample(samples: Tensor, rate: int, new_rate: int) -> Tensor:
    """Change the sampling rate by truncating or zero-padding the spectrum."""
    if rate == new_rate or not len(samples):
        return samples
    length = max(1, round(len(samples) * new_rate / rate))
    spectrum = torch.fft.rfft(samples)
    return torch.fft.irfft(spectrum[: length // 2 + 1], n=length) * (length / len(samples))


def fit_length(samples: Tensor, length: int) -> Tensor:
    """Cut samples to the middle part, or pad them with silence on both sides."""
    excess = len(samples) - length
    if excess >= 0:
        return samples[excess // 2 : excess // 2 + length]
    return torch.nn.functional.pad(samples, (-excess // 2, -excess - -excess // 2))


def _conversion_notes(name: str, headers: list[WavHeader], schema: dict[str, Any]) -> tuple[str, ...]:
    lengths = [header.frames / header.rate for header in headers]
    seconds = schema["samples"] / schema["rate"]
    cut = sum(length > seconds + 1e-9 for length in lengths)
    rates = len({header.rate for header in headers})
    resampled = f"; {rates} sampling rates resampled to {schema['rate']} Hz" if rates > 1 else ""
    if min(lengths) == max(lengths) == seconds and rates == 1:
        return ()
    return (
        f"{name}: clips of {min(lengths):.2f} to {max(lengths):.2f} s fitted to {seconds:.2f} s, {cut} of "
        f"{len(lengths)} cut, the others padded with silence{resampled}; --seconds sets another length",
    )
