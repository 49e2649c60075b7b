"""moonfed compare --config: methods, seeds and baseline from a TOML file; the three files of examples/."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import QUICK, moonfed, refuse
from file_archives import flights_archive, recordings, sentences_archive, some_flights

from moonfed.data import DATASETS
from moonfed.data.catalog.flights import read_flights
from moonfed.data.catalog.sentiment import read_sentiment
from moonfed.data.catalog.spoken_digits import read_spoken_digits

EXAMPLES = Path(__file__).parents[2] / "examples"
METHODS = ["moon:mu=1", "fedavg", "fedprox:mu=0.01"]


@pytest.fixture
def cache(place, monkeypatch):
    """An empty cache of data sets."""
    folder = place / "cache"
    folder.mkdir()
    monkeypatch.setenv("MOONFED_DATA", str(folder))
    return folder


def test_a_table_with_carriers_runs_from_its_file_to_intervals(cache, tmp_path):
    path = tmp_path / "flights.tar.gz"
    path.write_bytes(flights_archive(some_flights({"AA": 420, "BB": 360, "CC": 300})))
    (cache / "flights.csv").write_bytes(read_flights(path))
    words = ["compare", "--config", EXAMPLES / "table.toml", "--rounds", "2", "--seeds", "0-1", "--out", "out"]
    answer = moonfed(*words)
    assert answer.code == 0, answer.err
    (party,) = [line.split() for line in answer.out.splitlines() if line.split()[:1] == ["AA"]]
    assert party[:3] == ["AA", "336", "84"], "the parties are the carriers"
    found = moonfed(*words, "--resume", "--json").value
    assert [item["method"] for item in found] == METHODS
    verdicts = {"better", "worse", "statistically indistinguishable", "two equal differences"}
    for item in found:
        over = item["accuracy"]
        assert over["n"] == 2
        assert (over["low"], over["high"], over["remark"]) == (None, None, "2 seeds: no interval")
        assert (item["difference"] is None) == (item["method"] == "fedavg"), "the baseline of the file"
        assert item["difference"] is None or item["difference"]["verdict"] in verdicts
        line = next(line for line in answer.out.splitlines() if line.split()[:1] == [item["method"]])
        assert "2 seeds: no interval" in line
        assert item["difference"] is None or line.rstrip().endswith(item["difference"]["verdict"])


def test_a_text_with_sites_runs_from_its_file(cache, tmp_path):
    path = tmp_path / "vader.tar.gz"
    path.write_bytes(sentences_archive(40))
    (cache / "sentiment.csv").write_bytes(read_sentiment(path))
    words = ["compare", "--config", EXAMPLES / "text.toml", "--rounds", "1", "--seeds", "0", "--out", "out", "--json"]
    answer = moonfed(*words)
    assert answer.code == 0, answer.err
    assert all(0 <= item["accuracy"]["mean"] <= 1 for item in answer.value)


def test_audio_with_speakers_runs_from_its_file(cache, monkeypatch, tmp_path):
    np.savez(tmp_path / "all.npz", **recordings())  # type: ignore[arg-type]
    (cache / "spoken-digits.safetensors").write_bytes(read_spoken_digits(tmp_path / "all.npz"))
    whole = DATASETS["spoken-digits"]()
    assert whole.party is not None
    few = replace(whole, inputs=whole.inputs[::9], labels=whole.labels[::9], party=whole.party[::9])
    monkeypatch.setitem(DATASETS, "spoken-digits", lambda: few)
    words = ["compare", "--config", EXAMPLES / "audio.toml", "--rounds", "1", "--seeds", "0", "--out", "out"]
    answer = moonfed(*words)
    assert answer.code == 0, answer.err
    (party,) = [line.split() for line in answer.out.splitlines() if line.split()[:1] == ["theo"]]
    assert party[:3] == ["theo", "50", "50"]


def test_an_example_without_its_data_names_the_command_that_gets_it(cache):
    answer = moonfed("compare", "--config", EXAMPLES / "table.toml")
    assert answer.code == 2
    assert "get it with: moonfed data get flights" in answer.err


def write(text: str) -> Path:
    path = Path("own.toml")
    path.write_text(text)
    return path


def test_methods_and_seeds_of_the_command_line_win_over_the_file(place):
    path = write('[compare]\nmethods = ["moon", "fedavg"]\nseeds = [0, 1]\nbaseline = "moon"\n[train]\nrounds = 1\n')
    found = moonfed("compare", "--config", path, *QUICK, "--json").value
    assert [(item["method"], item["seeds"]) for item in found] == [("moon", [0, 1]), ("fedavg", [0, 1])]
    assert [item["difference"] is None for item in found] == [True, False]
    found = moonfed("compare", "moon", "fedprox", "--seeds", "3", "--config", path, *QUICK, "--json").value
    assert [(item["method"], item["seeds"]) for item in found] == [("moon", [3]), ("fedprox", [3])]


@pytest.mark.parametrize(
    ("text", "words", "line"),
    [
        ("[train]\nrounds = 1\n", [], "compare needs methods: moonfed compare moon fedavg, or methods = ["),
        ("[compare]\nmethods = []\n", [], "compare needs methods: "),
        ('[compare]\nmethods = "moon"\n', [], "compare needs methods: "),
        (
            '[compare]\nmethods = ["moon"]\nbaseline = "fedavg"\n',
            [],
            "the baseline must be one of the methods moon, got",
        ),
        ('[compare]\nmethod = ["moon"]\n', [], 'no setting "method" in [compare]; did you mean methods? known: '),
        ('[compare]\nmethods = ["moon", "moon"]\n', [], "give each method once, got moon moon"),
        ('[compare]\nmethods = ["moon"]\nseeds = "x"\n', [], "--seeds needs whole numbers"),
        ('[compare]\nmethods = ["moon"]\nseeds = "0-4"\n', ["--seed", "3"], "got both seed 3 and seeds 0-4"),
    ],
)
def test_a_wrong_compare_table_is_rejected_in_one_line(place, text, words, line):
    path = write(text)
    assert line in refuse(place, "compare", "--config", path, *words)


def test_compare_without_methods_and_without_a_file_is_rejected_in_one_line(place):
    assert "compare needs methods: moonfed compare moon fedavg, or methods = [" in refuse(place, "compare")
