"""Folders of pictures and of sounds: made equal, by class, by party."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import moonfed
from own_rows import QUICK, pictures, tone
from PIL import Image

from moonfed.data.own import OwnSettings, apply, own_data
from moonfed.data.own.sound import resampled, spectrogram


def test_a_folder_of_pictures_keeps_its_pixels_where_sizes_agree(place: Path):
    data = own_data(pictures(place / "shades"))
    assert data.inputs.shape[1:] == (1, 9, 12)
    assert data.class_names == ("bright", "dark")
    assert data.encoder == "cnn"
    assert {int(v) for v in data.inputs.unique()} | {int(v) for v in data.test_inputs.unique()} == {
        *range(40, 48),
        *range(200, 208),
    }
    assert data.mean[0] == pytest.approx(data.inputs.double().mean().item())
    assert moonfed("run", "--data", "shades", "--parties", "2", "--floor", "2", "--batch", "2", *QUICK).code == 0


def test_pictures_of_several_sizes_and_colours_are_made_equal_and_it_is_said(place: Path):
    pictures(place / "shades", ((12, 9), (12, 9), (300, 200)))
    Image.new("RGB", (12, 9), (250, 0, 0)).save(place / "shades" / "bright" / "red.jpeg", quality=95)
    Image.new("RGBA", (12, 9), (0, 0, 0, 0)).save(place / "shades" / "bright" / "clear.webp", lossless=True)
    said: list[str] = []
    data = own_data("shades", OwnSettings(test="shades"), said.append)
    assert data.inputs.shape == (18, 3, 9, 12)
    assert any("2 sizes made 9x12" in line for line in said)
    assert any("all are taken as colour" in line for line in said)
    assert data.inputs[0].float().mean() in (200, 255)
    assert (data.inputs[8] == 255).all(), "what is transparent is white"
    assert own_data("shades", OwnSettings(size=(5, 7))).inputs.shape[1:] == (3, 5, 7)


@pytest.mark.parametrize("size", [(1, 1), (3, 20), (4, 4), (70, 5), (64, 31)])
def test_pictures_of_any_size_find_an_encoder_that_takes_them(size: tuple[int, int], place: Path):
    pictures(place / "shades", (size,))
    quick = ["--parties", "2", "--floor", "2", "--batch", "2", "--epochs", "1", "--rounds", "1"]
    answer = moonfed("run", "--data", "shades", *quick)
    assert answer.code == 0, answer.err


def test_folders_of_parties_and_of_train_and_test_are_taken_apart(place: Path):
    for party in ("north", "south"):
        pictures(place / "by-party" / party, each=4)
    data = own_data("by-party", OwnSettings(party="folder"))
    assert data.party_names == ("north", "south")
    pictures(place / "parted" / "train", each=4)
    pictures(place / "parted" / "test", each=2)
    said: list[str] = []
    data = own_data("parted", say=said.append)
    assert (len(data.labels), len(data.test_labels)) == (8, 4)
    assert len(said) == 1
    pictures(place / "parted" / "validation", each=2)
    own_data("parted", say=said.append)
    assert said[1] == "parted: the folder validation is left out"


def test_rows_to_be_predicted_may_lie_in_no_class(place: Path):
    data = own_data(pictures(place / "shades"))
    assert data.encoding is not None
    (place / "new").mkdir()
    Image.new("RGB", (30, 30), (9, 9, 9)).save(place / "new" / "one.png")
    found = apply(data.encoding, "new")
    assert found.labels is None
    assert found.inputs.shape == (1, 1, 9, 12)
    assert float(found.inputs[0, 0, 0, 0]) == pytest.approx((9 - data.mean[0]) / data.std[0], abs=1e-5)
    assert torch.equal(apply(data.encoding, "new/one.png").inputs, found.inputs)


def test_the_loudest_band_of_a_tone_rises_with_its_pitch():
    time = torch.arange(8000) / 8000
    loudest = [int(spectrogram(torch.sin(2 * math.pi * hz * time), 8000).mean(1).argmax()) for hz in (200, 800, 3000)]
    assert loudest == sorted(set(loudest))
    assert spectrogram(torch.zeros(8000), 8000).shape == (40, 101)


def test_a_tone_brought_to_another_rate_is_the_same_tone():
    high, low = (torch.sin(2 * math.pi * 440 * torch.arange(rate) / rate) for rate in (16000, 8000))
    assert torch.allclose(resampled(high, 16000, 8000), low, atol=1e-3)
    assert torch.allclose(resampled(low, 8000, 16000), high, atol=1e-3)


@pytest.mark.parametrize("wide", [1, 2, 3, 4])
def test_samples_of_every_width_are_the_same_sound(wide: int, place: Path):
    from moonfed.data.own.folder import Clip
    from moonfed.data.own.sound import _samples  # pyright: ignore[reportPrivateUsage]

    tone(place / "a.wav", 440, wide=wide, channels=2)
    wanted = 0.9 * np.sin(2 * np.pi * 440 * np.arange(2400) / 8000)
    assert np.abs(_samples(Clip(place / "a.wav", "a.wav", None, None)) - wanted).max() < 4 / 2 ** (8 * min(wide, 2))


def test_a_folder_of_sounds_by_speaker_trains(place: Path):
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
    assert "2 sampling rates brought to 8000 Hz" in answer.err
    assert json.loads((place / "run" / "config.json").read_text())["config"]["model"]["model"] == "sound"
    assert "spectrograms of 1x40x" in answer.err
