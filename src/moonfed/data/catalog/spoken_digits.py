"""The Free Spoken Digit Dataset: 3,000 recordings of ten digits by six speakers, at 8 kHz."""

import hashlib
import re
import wave
import zipfile
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
from moonfed.data.catalog.monitor import QUIET, SourceError, Watch
from moonfed.data.dataset import Dataset
from moonfed.data.spectrogram import log_mel

SPEAKERS = ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")
DIGITS, TAKES, TEST_TAKES, RATE = 10, 50, 5, 8000  # the first five takes of each digit are the official test set
BANDS, FRAMES = 32, 32  # 0.66 seconds: 19 of 20 recordings are whole
NAME = re.compile(r"(\d)_([a-z]+)_(\d{1,2})\.wav")
MOST = 200_000  # samples of a recording
Arrays = dict[str, NDArray[Any]]


def read_spoken(path: Path, watch: Watch = QUIET) -> bytes:
    """Read the official folder of .wav files, recordings/ or what holds it, or one .npz file of all."""
    takes = _from_npz(path) if path.suffix == ".npz" else _from_folder(path, watch)
    wanted = [(s, d, t) for s in range(len(SPEAKERS)) for d in range(DIGITS) for t in range(TAKES)]
    missing = [key for key in wanted if key not in takes]
    if missing:
        s, d, t = missing[0]
        raise SourceError(f"{len(missing)} of {len(wanted)} recordings are missing, {d}_{SPEAKERS[s]}_{t}.wav is one")
    order = [takes[key] for key in wanted]
    ends = np.cumsum([len(take) for take in order], dtype=np.int64)
    return to_bytes({"audio": np.concatenate(order), "ends": ends})


def digest_of(content: bytes) -> str:
    """Hash every sample and where each recording ends, in the order of speaker, digit and take."""
    held = _arrays(content)
    digest = hashlib.sha256(held["audio"].astype("<i2").tobytes())
    digest.update(held["ends"].astype("<i8").tobytes())
    return digest.hexdigest()


def load_spoken(path: Path) -> Dataset:
    """Make spectrograms of the recordings; the parties are the speakers."""
    try:
        held = _arrays(path.read_bytes())
    except (OSError, SourceError) as error:
        raise UserError(f"{path} cannot be read: {error}; get it again with: moonfed data get spoken-digits") from None
    takes = np.split(held["audio"].astype(np.float64) / 2**15, held["ends"][:-1])
    heard = torch.from_numpy(np.stack([log_mel(take, RATE, BANDS, FRAMES) for take in takes]))[:, None]
    number = torch.arange(len(takes))
    take, digit, speaker = number % TAKES, number // TAKES % DIGITS, number // (TAKES * DIGITS)
    test = take < TEST_TAKES
    heard = (heard - heard[~test].mean()) / heard[~test].std()
    return Dataset(
        "spoken-digits",
        heard[~test],
        digit[~test],
        heard[test],
        digit[test],
        DIGITS,
        batch=16,
        encoder="sound",
        party=speaker[~test],
        test_party=speaker[test],
        party_names=SPEAKERS,
    )


def _from_folder(path: Path, watch: Watch) -> dict[tuple[int, int, int], NDArray[np.int16]]:
    folder = path / "recordings" if (path / "recordings").is_dir() else path
    if not folder.is_dir():
        raise SourceError("the folder recordings of the Free Spoken Digit Dataset is needed, or one .npz file of it")
    found: dict[tuple[int, int, int], NDArray[np.int16]] = {}
    for file in sorted(folder.glob("*.wav")):
        name = NAME.fullmatch(file.name)
        if name is None or name[2] not in SPEAKERS:
            continue
        try:
            with wave.open(str(file)) as sound:
                form = (sound.getnchannels(), sound.getsampwidth(), sound.getframerate())
                samples = np.frombuffer(sound.readframes(MOST), "<i2") if form == (1, 2, RATE) else None
        except (OSError, EOFError, wave.Error) as error:
            raise SourceError(f"{file.name} cannot be read: {short(error)}") from None
        if samples is None:
            raise SourceError(f"{file.name} should have one channel of 16 bits at {RATE} Hz")
        found[SPEAKERS.index(name[2]), int(name[1]), int(name[3])] = samples.astype(np.int16)
        watch.moved("reading recordings", len(found), len(SPEAKERS) * DIGITS * TAKES, "recordings")
    return found


def _from_npz(path: Path) -> dict[tuple[int, int, int], NDArray[np.int16]]:
    """Read arrays of audio, offsets, labels, speakers, index and speaker_names."""
    try:
        with np.load(path) as file:
            held = {name: np.asarray(file[name]) for name in file.files}
        takes = np.split(held["audio"].astype(np.int16), held["offsets"][1:-1])
        names = [str(held["speaker_names"][k]) for k in held["speakers"]]
        keys = zip(names, held["labels"].tolist(), held["index"].tolist(), strict=True)
        return {(SPEAKERS.index(n), d, t): take for (n, d, t), take in zip(keys, takes, strict=True)}
    except (OSError, ValueError, KeyError, IndexError, EOFError, zipfile.BadZipFile) as error:
        raise SourceError(f"it is no .npz file of the recordings: {short(error)}") from None


def _arrays(content: bytes) -> Arrays:
    try:
        held = from_bytes(content)
        if held["ends"][-1] != len(held["audio"]):
            raise KeyError
    except (SafetensorError, KeyError, IndexError) as error:
        raise SourceError(f"it does not hold the recordings: {short(error)}") from None
    return held
