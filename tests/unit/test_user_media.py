"""Folders of images and of audio clips, by class and by party."""

import json
import logging
import math
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import moonfed, refuse
from PIL import Image
from user_rows import QUICK, four_clips, tone, write_images

from moonfed.data.readers import ReaderOptions, apply_encoding, read_dataset
from moonfed.data.readers.audio import resample
from moonfed.data.readers.wav import read_header, read_samples
from moonfed.data.spectrogram import log_mel, mel_filters


def test_a_folder_of_images_of_one_size_keeps_its_pixels(place: Path):
    data = read_dataset(write_images(place / "shades"))
    assert data.inputs.shape[1:] == (1, 9, 12)
    assert data.class_names == ("bright", "dark")
    assert data.encoder == "cnn"
    assert {int(v) for v in data.inputs.unique()} | {int(v) for v in data.test_inputs.unique()} == {
        *range(40, 48),
        *range(200, 208),
    }
    assert data.mean[0] == pytest.approx(data.inputs.double().mean().item())
    assert moonfed("run", "--data", "shades", "--parties", "2", "--floor", "2", "--batch", "2", *QUICK).code == 0


def test_images_of_several_sizes_and_colours_get_one_shape_with_a_message(
    place: Path, caplog: pytest.LogCaptureFixture
):
    write_images(place / "shades", ((12, 9), (12, 9), (300, 200)))
    Image.new("RGB", (12, 9), (250, 0, 0)).save(place / "shades" / "bright" / "red.jpeg", quality=95)
    Image.new("RGBA", (12, 9), (0, 0, 0, 0)).save(place / "shades" / "bright" / "clear.webp", lossless=True)
    caplog.set_level(logging.INFO, "moonfed")
    data = read_dataset("shades", ReaderOptions(test="shades"))
    assert data.inputs.shape == (18, 3, 9, 12)
    assert any("2 sizes resized to 9x12" in line for line in caplog.messages)
    assert any("all are read as colour" in line for line in caplog.messages)
    assert data.inputs[0].float().mean() in (200, 255)
    assert (data.inputs[8] == 255).all(), "what is transparent is white"
    assert read_dataset("shades", ReaderOptions(size=(5, 7))).inputs.shape[1:] == (3, 5, 7)


@pytest.mark.parametrize("size", [(1, 1), (3, 20), (4, 4), (70, 5), (64, 31)])
def test_images_of_any_size_have_a_default_encoder(size: tuple[int, int], place: Path):
    write_images(place / "shades", (size,))
    quick = ["--parties", "2", "--floor", "2", "--batch", "2", "--epochs", "1", "--rounds", "1"]
    answer = moonfed("run", "--data", "shades", *quick)
    assert answer.code == 0, answer.err


def test_folders_of_parties_and_of_train_and_test_are_recognised(place: Path, caplog: pytest.LogCaptureFixture):
    for party in ("north", "south"):
        write_images(place / "by-party" / party, each=4)
    data = read_dataset("by-party", ReaderOptions(party="folder"))
    assert data.party_names == ("north", "south")
    write_images(place / "parted" / "train", each=4)
    write_images(place / "parted" / "test", each=2)
    caplog.set_level(logging.INFO, "moonfed")
    data = read_dataset("parted")
    assert (len(data.labels), len(data.test_labels)) == (8, 4)
    assert len(caplog.messages) == 1
    write_images(place / "parted" / "validation", each=2)
    read_dataset("parted")
    assert caplog.messages[1] == "parted: the folder validation is ignored"


def test_rows_to_predict_may_be_in_no_class_folder(place: Path):
    data = read_dataset(write_images(place / "shades"))
    assert data.encoding is not None
    (place / "new").mkdir()
    Image.new("RGB", (30, 30), (9, 9, 9)).save(place / "new" / "one.png")
    found = apply_encoding(data.encoding, "new")
    assert found.labels is None
    assert found.inputs.shape == (1, 1, 9, 12)
    assert float(found.inputs[0, 0, 0, 0]) == pytest.approx((9 - data.mean[0]) / data.std[0], abs=1e-5)
    assert torch.equal(apply_encoding(data.encoding, "new/one.png").inputs, found.inputs)


def test_the_loudest_band_of_a_tone_rises_with_its_pitch(place: Path):
    for k, pitch in enumerate((200, 800, 3000, 200, 800, 3000)):
        tone(place / "tones" / "ab"[k % 2] / f"{k}.wav", pitch, seconds=1)
    heard = read_dataset("tones", ReaderOptions(test="tones")).encoding
    assert heard is not None
    rows = apply_encoding(heard, "tones").rows
    loudest = {rows.place(k)[-5]: int(rows.content[k, 0].mean(1).argmax()) for k in range(6)}  # type: ignore[index]
    assert loudest["0"] < loudest["4"] < loudest["2"]
    assert loudest["0"] == loudest["3"]
    assert heard["scheme"]["shape"] == [1, 40, 98], "25 ms every 10 ms of a second"


@pytest.mark.parametrize(
    ("rate", "window", "bands"), [(8000, 200, 40), (8000, 256, 32), (44100, 1102, 40), (100, 16, 4)]
)
def test_no_filter_is_zero_and_the_filters_cover_every_frequency(rate: int, window: int, bands: int):
    filters = mel_filters(rate, window, bands)
    assert filters.shape == (bands, window // 2 + 1)
    assert (filters.sum(1) > 0.5).all()
    assert (filters[:, 1:-1].sum(0) > 0).all()


def test_the_spectrogram_of_a_long_clip_equals_that_of_its_pieces():
    samples = np.random.Generator(np.random.PCG64(0)).normal(size=80 * 5000)
    whole = log_mel(samples, 8000, 8, 4990, 0.025, 0.010)
    part = log_mel(samples[80 * 3000 :], 8000, 8, 100, 0.025, 0.010)
    assert np.allclose(whole[:, 3000:3100], part, atol=1e-5)


def test_a_resampled_tone_is_the_same_tone():
    high, low = (torch.sin(2 * math.pi * 440 * torch.arange(rate) / rate) for rate in (16000, 8000))
    assert torch.allclose(resample(high, 16000, 8000), low, atol=1e-3)
    assert torch.allclose(resample(low, 8000, 16000), high, atol=1e-3)


@pytest.mark.parametrize("wide", [1, 2, 3, 4])
def test_samples_of_every_width_have_the_same_values(wide: int, place: Path):
    tone(place / "a.wav", 440, wide=wide, channels=2)
    wanted = 0.9 * np.sin(2 * np.pi * 440 * np.arange(2400) / 8000)
    assert np.abs(read_samples(place / "a.wav") - wanted).max() < 4 / 2 ** (8 * min(wide, 2))


def riff(
    kind: int, values: bytes, bits: int, rate: int = 8000, extended: bool = False, size: int | None = None
) -> bytes:
    """The bytes of a .wav file with one channel; the header of an extended one names the kind further behind."""
    wide = (bits + 7) // 8
    head = struct.pack("<HHIIHH", 0xFFFE if extended else kind, 1, rate, rate * wide, wide, bits)
    head += struct.pack("<HHIH14x", 22, bits, 4, kind) if extended else b""
    chunks = [(b"fmt ", head), (b"LIST", b"odd"), (b"data", values)]
    body = b"".join(n + struct.pack("<I", len(c)) + c + b"\0" * (len(c) % 2 and n != b"data") for n, c in chunks)
    if size is not None:
        body = body.replace(b"data" + struct.pack("<I", len(values)), b"data" + struct.pack("<I", size))
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WAVE" + body


def test_headers_that_other_programs_write_are_read():
    wave_ = np.sin(np.arange(800) / 5) / 2
    whole = (wave_ * 2**31).astype("<i4")
    three = np.frombuffer(whole.tobytes(), np.uint8).reshape(-1, 4)[:, 1:].tobytes()
    for source in (
        riff(1, three, 24, extended=True),
        riff(3, wave_.astype("<f4").tobytes(), 32),
        riff(3, wave_.astype("<f8").tobytes(), 64, extended=True),
        riff(1, whole.tobytes(), 32, size=0xFFFFFFFF),
    ):
        assert read_header(source).frames == 800
        assert np.abs(read_samples(source) - wave_).max() < 1e-6


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (b"", "the file is truncated"),
        (b"RIFFxxxxJUNKxxxx", "not a .wav file"),
        (riff(1, b"", 16), "it has no samples"),
        (riff(7, bytes(80), 8), "samples of format 7 and 8 bits"),
        (riff(1, bytes(80), 40), "samples of format 1 and 40 bits"),
        (riff(1, bytes(80), 16, rate=0), "its sampling rate is 0 Hz"),
        (riff(1, bytes(80), 16, rate=7), "its sampling rate is 7 Hz"),
        (riff(1, bytes(80), 16)[:-10], "the file is truncated"),
        (riff(1, bytes(80), 16)[:30], "the file is truncated"),
        (riff(1, bytes(80), 16).replace(b"fmt ", b"else"), "its header does not describe"),
        (riff(3, np.full(20, np.nan, "<f4").tobytes(), 32), "its samples are not finite"),
    ],
)
def test_an_unreadable_wav_file_is_named_with_the_reason(source: bytes, why: str, place: Path):
    four_clips(place / "sounds")
    (place / "sounds" / "a" / "other.wav").write_bytes(source)
    assert f"sounds has a bad row of 5: a/other.wav (unreadable: {why}" in refuse(place, "run", "--data", "sounds")


def test_clips_of_any_length_and_rate_are_read(place: Path):
    for k, (seconds, rate) in enumerate([(0.02, 100), (1.0, 100), (0.001, 8000), (0.2, 96000)]):
        for name in "aabb":
            tone(place / str(k) / name / f"{len(list(place.rglob('*')))}.wav", 20, seconds, rate)
        assert read_dataset(str(k)).inputs.isfinite().all()


def test_a_folder_of_audio_by_speaker_trains(place: Path):
    for speaker in ("ann", "bob"):
        for name, pitch in (("low", 200), ("high", 1500)):
            for k in range(6):
                tone(
                    place / "sounds" / speaker / name / f"{k}.wav",
                    pitch + 20 * k,
                    0.2 + 0.01 * k,
                    8000 + 3025 * (k == 5),
                )
    own = ["--data", "sounds", "--party", "folder"]
    answer = moonfed("run", *own, "--rounds", "4", "--epochs", "2", "--batch", "4", "--out", "run")
    assert answer.code == 0, answer.err
    assert "2 sampling rates resampled to 8000 Hz" in answer.err
    assert json.loads((place / "run" / "config.json").read_text())["config"]["model"]["model"] == "sound"
    assert "spectrograms of 1x40x" in answer.err
