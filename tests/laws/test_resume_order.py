"""A checkpoint sorts its tensors by name; a resumed run must not: sums over tensors depend on their order."""

import json
from pathlib import Path

import pytest
from commands import QUICK, SMALL, bits, moonfed

from moonfed.training.registry import ALGORITHMS


def log(folder: Path) -> list[dict]:
    rounds = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    return [{k: v for k, v in record.items() if not k.endswith("seconds")} for record in rounds]


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
@pytest.mark.parametrize(
    "words",
    [["--algorithm", "fedavg", "--max-grad-norm", "0.5"], ["--algorithm", "fedprox", "--mu", "1", "--gamma"]],
    ids=["clipping", "proximal"],
)
def test_resumed_is_never_interrupted_in_weights_and_log(place: Path, words: list[str], engine: str) -> None:
    asked = ["run", *SMALL, *words, "--engine", engine]
    assert moonfed(*asked, "--rounds", "4", "--out", "whole").code == 0
    assert moonfed(*asked, "--rounds", "2", "--out", "parts").code == 0
    assert moonfed(*asked, "--rounds", "4", "--out", "parts", "--resume").code == 0
    assert log(place / "whole") == log(place / "parts")
    assert (
        bits(place / "whole")["tensors"]["final.safetensors"] == bits(place / "parts")["tensors"]["final.safetensors"]
    )


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_field_of_the_log_is_what_it_would_have_been(place: Path, algorithm: str) -> None:
    """With gamma, a norm over all tensors, and half of the parties per round; files too are equal to the byte."""
    asked = ["run", *QUICK, "--fraction", "0.5", "--gamma", "--algorithm", algorithm]
    assert moonfed(*asked, "--rounds", "3", "--out", "whole").code == 0
    assert moonfed(*asked, "--rounds", "1", "--out", "parts").code == 0
    assert moonfed(*asked, "--rounds", "3", "--out", "parts", "--resume").code == 0
    assert log(place / "whole") == log(place / "parts")
    assert (place / "whole/final.safetensors").read_bytes() == (place / "parts/final.safetensors").read_bytes()


def test_a_finished_run_whose_record_asks_for_more_rounds_is_still_finished(place: Path) -> None:
    """As after --resume --rounds 400, stopped before its first new round."""
    assert moonfed("run", *SMALL, "--out", "run").code == 0
    path = place / "run" / "config.json"
    there = json.loads(path.read_text())
    there["config"]["train"]["rounds"] = 400
    path.write_text(json.dumps(there))
    again = moonfed("run", *SMALL, "--out", "run", "--resume")
    assert again.code == 0, again.err
