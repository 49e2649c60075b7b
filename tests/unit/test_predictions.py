"""Predictions carry the rows' identifiers and say which rows the model was trained on."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import SMALL, moonfed, refused
from user_rows import write_csv, write_images

from moonfed import fit, load, predict
from moonfed.core.errors import UserError
from moonfed.data.catalog.digits import digits

HEADER = ["patient", "age", "job", "ill"]
ROWS = [[f"P{k:03}", 20 + k, ("cook", "nurse", "")[k % 3], ("no", "yes")[k % 2]] for k in range(100)]
WORDS = ["--label", "ill", "--ignore", "patient", "--parties", "2", "--rounds", "1", "--epochs", "1"]


@pytest.fixture
def run(place: Path) -> Path:
    write_csv(place / "people.csv", HEADER, ROWS)
    assert moonfed("run", "--data", "people.csv", *WORDS, "--out", "run").code == 0
    return place / "run"


def test_training_rows_among_the_predicted_are_counted(run: Path, place: Path) -> None:
    said = moonfed("predict", run, "people.csv", "-o", "p.csv").out
    assert said.startswith("100 rows predicted, ")
    assert "; 80 of them were training rows (" in said
    assert "% of the other 20 correctly); p.csv\n" in said
    measured = json.loads((run / "evaluation.json").read_text())["accuracy"]
    found = predict("run", "people.csv")
    assert found.accuracy_on_new_rows == pytest.approx(measured), "the others are the held-out rows"
    shutil.copy("people.csv", "copy.csv")
    assert predict("run", "copy.csv").training_rows == 80, "wherever they stand"
    answer = moonfed("predict", run, "copy.csv", "--json").value
    assert answer["training_rows"] == sum(row["training_row"] for row in answer["rows"]) == 80
    write_csv(place / "new.csv", HEADER, [["N", 500 + k, "cook", "no"] for k in range(5)])
    assert moonfed("predict", run, "new.csv", "-o", "p.csv").out.count(";") == 1, "nothing to say of new rows"
    assert predict("run", "new.csv").training_rows == 0
    write_csv(place / "unlabelled.csv", HEADER[:3], [row[:3] for row in ROWS])
    said = moonfed("predict", run, "unlabelled.csv", "-o", "p.csv").out
    assert said == "100 rows predicted; 80 of them were training rows; p.csv\n"


def test_rows_held_out_for_validation_are_no_training_rows(place: Path) -> None:
    write_csv(place / "people.csv", HEADER, ROWS)
    assert moonfed("run", "--data", "people.csv", *WORDS, "--validation", "0.25", "--out", "run").code == 0
    assert predict("run", "people.csv").training_rows == 60


def test_what_is_not_known_of_training_rows_is_said(run: Path, place: Path) -> None:
    unknown = "; whether they were training rows is not known: people.csv "
    with Path("people.csv").open("a") as file:
        file.write("P999,77,cook,no\n")
    assert f"{unknown}has changed since the run; p.csv\n" in moonfed("predict", run, "people.csv", "-o", "p.csv").out
    Path("people.csv").rename("elsewhere.csv")
    assert f"{unknown}is not there\n" in moonfed("predict", run, "elsewhere.csv").err
    assert moonfed("predict", run, "elsewhere.csv", "--json").value["training_rows"] is None
    Path("people.csv").write_text("nonsense")
    assert f"{unknown}has changed since the run\n" in moonfed("predict", run, "elsewhere.csv").err


def test_data_of_a_name_and_data_in_memory_are_not_read_again(place: Path) -> None:
    data = digits()
    np.savez("new.npz", x=data.test_inputs.numpy()[:, 0], y=data.test_labels.numpy())
    assert moonfed("run", *SMALL, "--out", "run").code == 0
    assert predict("run", "new.npz").trained == "digits is not read again"
    rows = np.random.RandomState(0).randn(60, 4)
    np.savez("rows.npz", x=rows, y=np.arange(60) % 2)
    settings: Any = {"parties": 2, "rounds": 1, "epochs": 1, "progress": False, "partition": "iid"}
    fit("mlp", (rows, np.arange(60) % 2), out="memory", **settings)
    assert predict("memory", "rows.npz").trained == "the training rows were in memory"
    fit("mlp", "rows.npz", out="file", **settings)
    assert predict("file", "rows.npz").training_rows == 48


def test_images_and_texts_that_were_trained_on_are_counted(place: Path) -> None:
    random = np.random.RandomState(0)
    write_images(place / "images", each=20)
    words = ["--parties", "2", "--partition", "iid", "--rounds", "1", "--epochs", "1"]
    assert moonfed("run", "--data", "images", *words, "--out", "run").code == 0
    assert predict("run", "images").training_rows == 32
    one = next(iter(sorted((place / "images").rglob("*.png"))))
    assert predict("run", one).training_rows in (0, 1)
    shutil.copytree("images", "others")
    assert predict("run", "others").trained == "images is large (a folder, or over 10 MB) and not read again"
    texts = [[" ".join(random.choice(list("abcdefgh"), 6)), k % 2] for k in range(60)]
    write_csv(place / "texts.csv", ["text", "label"], texts)
    assert moonfed("run", "--data", "texts.csv", "--text", "text", *words, "--out", "texts").code == 0
    assert predict("texts", "texts.csv").training_rows == 48


def test_an_id_column_is_carried_into_the_predictions(run: Path, place: Path) -> None:
    rows = [*ROWS[:3], ["P-bad", "old", "cook", "no"], *ROWS[3:6], ["", 30, "cook", "no"]]
    write_csv(place / "new.csv", HEADER, rows)
    answer = moonfed("predict", run, "new.csv", "--id", "patient", "--skip-bad-rows", "-o", "p.csv")
    assert answer.code == 0, answer.err
    found = list(csv.DictReader(Path("p.csv").read_text().splitlines()))
    assert list(found[0]) == ["patient", "row", "label", "predicted", "p(no)", "p(yes)"]
    assert [row["patient"] for row in found] == ["P000", "P001", "P002", "P003", "P004", "P005", ""]
    assert found[3]["row"] == "new.csv line 6"
    for row in found:
        chances = {name: float(row[f"p({name})"]) for name in ("no", "yes")}
        assert sum(chances.values()) == pytest.approx(1, abs=1e-5)
        assert row["predicted"] == max(chances, key=lambda name: chances[name])
    assert predict("run", "people.csv", id="age").ids == [str(row[1]) for row in ROWS], "an input may be one too"
    assert moonfed("predict", run, "people.csv", "--id", "patient", "--json").value["rows"][7]["id"] == "P007"
    assert moonfed("predict", run, "people.csv").out.splitlines()[1].startswith("people.csv line 2,no,")


def test_ids_of_parquet_files_and_arrays(run: Path, place: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    parquet.write_table(pyarrow.table({name: [row[k] for row in ROWS] for k, name in enumerate(HEADER)}), "t.parquet")
    assert predict("run", "t.parquet", id="patient").ids == [row[0] for row in ROWS]
    np.savez("rows.npz", x=np.random.RandomState(0).randn(60, 4), y=np.arange(60) % 2, key=np.arange(60) + 7)
    settings: Any = {"parties": 2, "rounds": 1, "epochs": 1, "progress": False, "partition": "iid"}
    fit("mlp", "rows.npz", out="arrays", **settings)
    assert predict("arrays", "rows.npz", id="key").ids == [str(k) for k in range(7, 67)]
    with pytest.raises(UserError, match=r'no array "ke" in rows.npz; did you mean key'):
        predict("arrays", "rows.npz", id="ke")
    with pytest.raises(UserError, match=r"rows.npz x needs one id for each row"):
        predict("arrays", "rows.npz", id="x")


def test_an_id_column_that_cannot_be_carried_is_refused(run: Path, place: Path) -> None:
    write_csv(place / "row.csv", ["row", *HEADER], [[k, *row] for k, row in enumerate(ROWS)])
    assert "predictions have a column row of their own" in refused(moonfed("predict", run, "row.csv", "--id", "row"))
    assert "did you mean patient?" in refused(moonfed("predict", run, "people.csv", "--id", "patent"))
    write_images(place / "images", each=12)
    words = ["--parties", "2", "--partition", "iid", "--rounds", "1", "--epochs", "1"]
    assert moonfed("run", "--data", "images", *words, "--out", "media").code == 0
    assert "needs a CSV, Parquet or .npz file" in refused(moonfed("predict", "media", "images", "--id", "name"))


def test_a_partys_own_model_is_used_by_name_in_predictions_exports_and_python(place: Path) -> None:
    write_csv(place / "people.csv", [*HEADER, "ward"], [[*row, "ab"[k % 2]] for k, row in enumerate(ROWS)])
    words = (*WORDS[:4], "--party", "ward", *WORDS[6:])
    assert moonfed("run", "--data", "people.csv", *words, "--algorithm", "fedper", "--out", "run").code == 0
    one, other = (predict("run", "people.csv", party=name).probabilities for name in "ab")
    assert np.abs(one - other).max() > 1e-3, "each ward has its own output layer"
    assert np.array_equal(predict("run", "people.csv", party=1).probabilities, other)
    answer = moonfed("predict", "run", "people.csv", "--party", "b", "--json").value
    assert [list(row["probabilities"].values()) for row in answer["rows"]] == other.tolist()
    assert moonfed("export", "run", "-o", "b.pt2", "--party", "1").out.startswith("model of party 1, takes")
    assert not torch.equal(load("run", party="a").model.head.weight, load("run", party="b").model.head.weight)
    assert "choose one with --party, one of a, b" in refused(moonfed("predict", "run", "people.csv"))
    with pytest.raises(UserError, match=r"choose one with party, one of a, b, got c"):
        predict("run", "people.csv", party="c")


def test_a_file_is_no_name_of_a_party_in_a_simulation(place: Path) -> None:
    write_csv(place / "people.csv", [*HEADER, "ward"], [[*row, "ab"[k % 2]] for k, row in enumerate(ROWS)])
    words = (*WORDS[:4], "--party", "ward", *WORDS[6:], "--algorithm", "fedper")
    assert moonfed("run", "--data", "people.csv", *words, "--out", "run").code == 0
    said = refused(moonfed("predict", "run", "people.csv", "--party", "run/final.safetensors"))
    assert "run is no federation and holds its parties' models; use --party with a name" in said
    assert moonfed("export", "run", "-o", "b.pt2", "--party", "b").out.startswith("model of party b, takes")
