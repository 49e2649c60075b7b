"""The Free Spoken Digit Dataset: 3,000 recordings of ten digits by six speakers, at 8 kHz."""

import hashlib
import re
import wave
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as from_bytes
from safetensors.numpy import save as to_bytes

from moonfed.core.errors import UserError
from moonfed.core.files import short
from moonfed.core.regular_file import regular_size
from moonfed.data.catalog.monitor import SILENT, SourceError, TransferMonitor
from moonfed.data.dataset import Dataset
from moonfed.data.readers.npz_archive import read_arrays
from moonfed.data.spectrogram import log_mel

SPEAKERS = ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")
DIGITS, TAKES, TEST_TAKES, RATE = 10, 50, 5, 8000  # the first five takes of each digit are the official test set
BANDS, FRAMES = 32, 32  # 0.66 seconds, longer than 95 % of the recordings
FILE_NAME = re.compile(r"(\d)_([a-z]+)_(\d{1,2})\.wav")
MAX_SAMPLES = 200_000  # per recording
Arrays = dict[str, NDArray[Any]]


def read_spoken_digits(path: Path, monitor: TransferMonitor = SILENT) -> bytes:
    """Read the official folder recordings/ of .wav files, the folder that contains it, or one .npz file of all."""
    takes = _read_npz(path) if path.suffix == ".npz" else _read_folder(path, monitor)
    expected = [(s, d, t) for s in range(len(SPEAKERS)) for d in range(DIGITS) for t in range(TAKES)]
    missing = [key for key in expected if key not in takes]
    if missing:
        s, d, t = missing[0]
        first = f"{d}_{SPEAKERS[s]}_{t}.wav"
        raise SourceError(f"{len(missing)} of {len(expected)} recordings are missing, the first is {first}")
    recordings = [takes[key] for key in expected]
    ends = np.cumsum([len(recording) for recording in recordings], dtype=np.int64)
    return to_bytes({"audio": np.concatenate(recordings), "ends": ends})


def recordings_digest(content: bytes) -> str:
    """Hash every sample and the end of each recording, in the order of speaker, digit and take."""
    arrays = _decode(content)
    digest = hashlib.sha256(arrays["audio"].astype("<i2").tobytes())
    digest.update(arrays["ends"].astype("<i8").tobytes())
    return digest.hexdigest()


def load_spoken_digits(path: Path) -> Dataset:
    """Load the recordings as spectrograms; each speaker is a party."""
    try:
        arrays = _decode(path.read_bytes())
    except (OSError, SourceError) as error:
        raise UserError(f"{path} cannot be read: {error}; get it again with: moonfed data get spoken-digits") from None
    takes = np.split(arrays["audio"].astype(np.float64) / 2**15, arrays["ends"][:-1])
    inputs = torch.from_numpy(np.stack([log_mel(take, RATE, BANDS, FRAMES) for take in takes]))[:, None]
    number = torch.arange(len(takes))
    take, digit, speaker = number % TAKES, number // TAKES % DIGITS, number // (TAKES * DIGITS)
    test = take < TEST_TAKES
    inputs = (inputs - inputs[~test].mean()) / inputs[~test].std()
    return Dataset(
        "spoken-digits",
        inputs[~test],
        digit[~test],
        inputs[test],
        digit[test],
        DIGITS,
        batch=16,
        encoder="sound",
        party=speaker[~test],
        test_party=speaker[test],
        party_names=SPEAKERS,
    )


def _read_folder(path: Path, monitor: TransferMonitor) -> dict[tuple[int, int, int], NDArray[np.int16]]:
    folder = path / "recordings" if (path / "recordings").is_dir() else path
    if not folder.is_dir():
        raise SourceError("the folder recordings of the Free Spoken Digit Dataset, or an .npz file of it, is needed")
    takes: dict[tuple[int, int, int], NDArray[np.int16]] = {}
    for file in sorted(folder.glob("*.wav")):
        name = FILE_NAME.fullmatch(file.name)
        if name is None or name[2] not in SPEAKERS:
            continue
        try:
            regular_size(file)
            with wave.open(str(file)) as audio:
                header = (audio.getnchannels(), audio.getsampwidth(), audio.getframerate())
                samples = np.frombuffer(audio.readframes(MAX_SAMPLES), "<i2") if header == (1, 2, RATE) else None
        except (OSError, EOFError, wave.Error) as error:
            raise SourceError(f"{file.name} cannot be read: {short(error)}") from None
        if samples is None:
            raise SourceError(f"{file.name} should have one channel of 16 bits at {RATE} Hz")
        takes[SPEAKERS.index(name[2]), int(name[1]), int(name[3])] = samples.astype(np.int16)
        monitor.update("reading recordings", len(takes), len(SPEAKERS) * DIGITS * TAKES, "recordings")
    return takes


def _read_npz(path: Path) -> dict[tuple[int, int, int], NDArray[np.int16]]:
    """Read arrays of audio, offsets, labels, speakers, index and speaker_names."""
    try:
        arrays = read_arrays(path, ("audio", "offsets", "labels", "speakers", "index", "speaker_names"))
        takes = np.split(arrays["audio"].astype(np.int16), arrays["offsets"][1:-1])
        names = [str(arrays["speaker_names"][k]) for k in arrays["speakers"]]
        keys = zip(names, arrays["labels"].tolist(), arrays["index"].tolist(), strict=True)
        return {(SPEAKERS.index(n), d, t): take for (n, d, t), take in zip(keys, takes, strict=True)}
    except (UserError, ValueError, KeyError, IndexError, TypeError) as error:
        raise SourceError(f"it is not an .npz file of the recordings: {short(error)}") from None


def _decode(content: bytes) -> Arrays:
    try:
        arrays = from_bytes(content)
        if arrays["ends"][-1] != len(arrays["audio"]):
            raise KeyError
    except (SafetensorError, KeyError, IndexError) as error:
        raise SourceError(f"it does not contain the recordings: {short(error)}") from None
    return arrays
