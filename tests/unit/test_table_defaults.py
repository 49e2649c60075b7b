"""Defaults that depend on the data: a table's own, a given setting first, everything else as it was."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import QUICK, bits, moonfed
from user_rows import people, write_images

from moonfed import fit
from moonfed.data.catalog.digits import digits
from moonfed.training.config import make_config
from moonfed.training.data_defaults import STEPS_PER_CLASS, table_epochs, table_weight_decay
from moonfed.training.resolve import resolve
from moonfed.training.setup import load_data

OLD = [
    "--epochs",
    "10",
    "--weight-decay",
    "1e-5",
    "--lr-schedule",
    "constant",
]  # the defaults of every data set before tables had their own


def resolved(data: dict[str, Any], **train: Any) -> Any:
    config = make_config({"data": data, "train": train})
    return resolve(config, load_data(config.data)).train


@pytest.mark.parametrize("rows", [50, 300, 1000, 5000, 40_000])
@pytest.mark.parametrize("parties", [2, 10])
@pytest.mark.parametrize("batch", [16, 64])
@pytest.mark.parametrize("classes", [2, 9])
def test_an_average_party_takes_about_ten_steps_per_class(rows: int, parties: int, batch: int, classes: int) -> None:
    epochs, steps = table_epochs(rows, parties, batch, classes, "natural"), rows / parties / batch
    assert 5 <= epochs <= 30
    if 5 < epochs < 30:
        assert abs(epochs * steps - STEPS_PER_CLASS * classes) <= steps / 2 + 1e-9
    assert table_epochs(rows, parties, batch, classes, "iid") == epochs
    assert table_epochs(rows, parties, batch, classes, "dirichlet") == max(10, epochs), "as published, or more"


def test_the_weight_decay_of_a_table_falls_as_its_rows_increase() -> None:
    assert [table_weight_decay(rows) for rows in (10, 100, 1000, 3000, 10**8)] == [0.01, 0.01, 0.001, 0.0003, 1e-5]


def test_a_table_has_defaults_of_its_own_and_a_given_setting_wins(place: Path) -> None:
    people(place / "people.csv", 300)
    data = {"path": "people.csv", "label": "kind", "party": "site"}
    found = resolved(data)
    assert (found.epochs, found.weight_decay, found.lr_schedule) == (5, 0.004, "cosine")  # 240 rows, 3 parties
    assert resolved(data, batch=64).epochs == 16, "2 classes: steps count, not rows"
    given = resolved(data, epochs=10, weight_decay=0.0, lr_schedule="linear")
    assert (given.epochs, given.weight_decay, given.lr_schedule) == (10, 0.0, "linear")
    in_memory = fit("mlp", (np.eye(40), np.arange(40) % 2), parties=2, partition="iid", rounds=1, progress=False)
    assert in_memory.runs[0].config.train.weight_decay == 0.01


def test_images_of_a_user_and_data_sets_of_the_catalog_keep_their_defaults(place: Path) -> None:
    write_images(place / "images", each=20)
    for data in ({"path": "images"}, {"dataset": "digits"}):
        found = resolved(data)
        assert (found.epochs, found.weight_decay, found.lr_schedule) == (10, 1e-5, "constant")


@pytest.mark.parametrize(
    ("values", "identity"),
    [
        ({}, "23c9625e630c8594"),
        ({"algorithm": {"name": "fedavg"}, "train": {"epochs": 3}}, "8f3701e15535bacd"),
    ],
)
def test_runs_on_the_catalog_keep_the_identity_of_version_0_1(values: dict[str, Any], identity: str) -> None:
    assert resolve(make_config(values), digits()).identity == identity
    assert make_config({"train": {"epochs": 10, "weight_decay": 1e-5}}).identity == make_config({}).identity


def test_a_run_of_a_table_with_other_defaults_is_not_continued_unless_they_are_given(place: Path) -> None:
    """As a folder of version 0.1: the settings are those that were resolved then."""
    people(place / "people.csv", 90)
    asked = ["run", "--data", "people.csv", "--label", "kind", "--party", "site", "--batch", "8"]
    assert moonfed(*asked, *OLD, "--rounds", "4", "--out", "whole").code == 0
    assert moonfed(*asked, *OLD, "--rounds", "2", "--out", "old").code == 0
    answer = moonfed(*asked, "--rounds", "4", "--out", "old", "--resume")
    assert answer.code == 2
    for change in ("epochs was 10, now 7", "weight_decay was 1e-05, now 0.01", "lr_schedule was constant, now cosine"):
        assert f"train.{change}" in answer.err
    assert moonfed(*asked, *OLD, "--rounds", "4", "--out", "old", "--resume").code == 0
    assert bits(place / "old") == bits(place / "whole")
    assert moonfed(*asked, "--rounds", "1").code == 0
    assert moonfed(*asked, *OLD, "--rounds", "1").code == 0, "in another folder"
    assert len(list((place / "runs").iterdir())) == 2


def test_a_run_folder_holds_the_settings_that_were_used(place: Path) -> None:
    people(place / "people.csv", 90)
    words = ["--data", "people.csv", "--label", "kind", "--party", "site", "--rounds", "1"]
    assert moonfed("run", *words, "--out", "run").code == 0
    train = json.loads((place / "run" / "config.json").read_text())["config"]["train"]
    assert (train["epochs"], train["weight_decay"]) == (13, 0.01)
    assert moonfed("run", *QUICK, "--rounds", "1", "--out", "digits").code == 0
    train = json.loads((place / "digits" / "config.json").read_text())["config"]["train"]
    assert train["weight_decay"] == 1e-5


def test_a_comparison_on_user_data_has_one_folder_whatever_its_rounds(place: Path) -> None:
    write_images(place / "images", each=20)
    words = ["compare", "moon", "fedavg", "--data", "images", "--seeds", "0", "--epochs", "1", "--model", "mlp"]
    assert moonfed(*words, "--rounds", "1").code == 0
    longer = moonfed(*words, "--rounds", "2", "--resume")
    assert longer.code == 0
    assert "resumed after round 1 of 2" in longer.out + longer.err
    assert len(list((place / "runs").iterdir())) == 1
