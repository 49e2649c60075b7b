"""An exported model says what it takes and gives, and one of a table takes raw columns: nothing is left to guess."""

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import SMALL, moonfed
from user_rows import people, tone, write_csv, write_images

from moonfed import __version__, export, fit, load, predict

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.filterwarnings("ignore")

PAGE = Path(__file__).parents[2] / "docs" / "export.md"
SCRIPT = """\
import csv
import sys

import numpy as np
import onnxruntime

model, table = sys.argv[1:]
session = onnxruntime.InferenceSession(model)
with open(table, newline="", encoding="utf-8") as file:
    rows = list(csv.DictReader(file))

columns = {}
for column in session.get_inputs():
    cells = [row[column.name].strip() for row in rows]
    if column.type == "tensor(string)":  # a category; "" is missing
        columns[column.name] = np.array(cells)
    else:  # a number; NaN is missing
        columns[column.name] = np.array([float(cell or "nan") for cell in cells])

predicted, probabilities = session.run(["predicted", "probabilities"], columns)
for name, row in zip(predicted, probabilities):
    print(name, *row, sep=",")
"""


def patients(path: Path, rows: int = 90) -> Path:
    """A table with missing numbers and categories, names that are not ASCII, and a large number."""
    random, made = np.random.RandomState(0), list[list[object]]()
    for k in range(rows):
        ill = k % 2
        made.append(
            [
                f"P{k:03}",
                ("rot", "grün", "", "a,b")[k % 4],
                "" if k % 7 == 3 else f"{130 + 20 * ill + 5 * random.randn():.3f}",
                1_700_000_000 + 1000 * k + ill,
                k % 3,
                ("", "nan")[k % 2],
                "ja" if ill else "nein",
            ]
        )
    return write_csv(path, ["patient", "Farbe", "blood pressure", "seconds", "stage", "empty", "krank?"], made)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("patients")
    table = patients(folder / "patients.csv")
    words = ["--label", "krank?", "--ignore", "patient", "--categories", "stage,empty", "--parties", "3"]
    answer = moonfed("run", "--data", table, *words, "--rounds", "2", "--epochs", "3", "--out", folder / "run")
    assert answer.code == 0, answer.err
    assert moonfed("export", folder / "run", "-o", folder / "model.onnx").code == 0
    return folder


def test_a_script_that_knows_nothing_of_this_package_gives_predicts_answers(trained: Path, place: Path) -> None:
    assert f"```python\n{SCRIPT}```" in PAGE.read_text(encoding="utf-8"), "the page shows this very script"
    rows = list(csv.reader((trained / "patients.csv").read_text(encoding="utf-8").splitlines()))
    rows += [["new", "blau", "", "1700000007", "9", "", ""], ["new", " rot ", "1e3", "-5", "", "x", ""]]
    table = write_csv(place / "new.csv", rows[0], rows[1:])  # with categories that no training row has
    Path("script.py").write_text(SCRIPT)
    command = [sys.executable, "-I", "script.py", str(trained / "model.onnx"), "new.csv"]
    ran = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert moonfed("predict", trained / "run", table, "-o", "predictions.csv").code == 0
    found = [line.split(",") for line in ran.stdout.splitlines()]
    expected = list(csv.DictReader(Path("predictions.csv").read_text(encoding="utf-8").splitlines()))
    assert len(found) == len(expected) == 92
    assert [row[0] for row in found] == [row["predicted"] for row in expected]
    assert {row["predicted"] for row in expected} <= {"ja", "nein"}
    for ours, theirs in zip(found, expected, strict=True):
        assert [float(p) for p in ours[1:]] == pytest.approx(
            [float(theirs[f"p({k})"]) for k in ("ja", "nein")], abs=2e-6
        )


def test_the_file_and_the_json_beside_it_say_the_same(trained: Path) -> None:
    facts = json.loads((trained / "model.onnx.json").read_text())
    session = runtime.InferenceSession(str(trained / "model.onnx"))
    held = session.get_modelmeta().custom_metadata_map
    assert {key: json.loads(value) for key, value in held.items()} == facts
    assert facts["moonfed"] == __version__
    assert facts["run"]["identity"] == json.loads((trained / "run" / "config.json").read_text())["identity"]
    assert facts["run"]["rounds"] == 2
    assert facts["classes"] == ["ja", "nein"]
    assert facts["label"] == "krank?"
    assert [column["name"] for column in facts["inputs"]] == ["Farbe", "blood pressure", "seconds", "stage"]
    assert facts["columns"][0]["categories"] == ["a,b", "grün", "rot"]
    assert facts["columns"][1]["missing_flag"]
    assert facts["features"][:5] == [
        "Farbe = a,b",
        "Farbe = grün",
        "Farbe = rot",
        "blood pressure",
        "blood pressure is missing",
    ]
    for said, real in zip(
        facts["inputs"] + facts["outputs"], session.get_inputs() + session.get_outputs(), strict=True
    ):
        kinds = {"float64": "tensor(double)", "float32": "tensor(float)", "string": "tensor(string)"}
        assert (said["name"], said["shape"], kinds[said["type"]]) == (real.name, real.shape, real.type)
        assert real.shape[0] == "batch"
    asked = moonfed("export", trained / "run", "-o", trained / "again.onnx", "--json").value
    assert {k: asked[k] for k in facts} == facts
    assert (trained / "again.onnx").read_bytes() == (trained / "model.onnx").read_bytes()


@pytest.mark.parametrize("kinds", ["both", "numbers", "categories"])
def test_columns_may_have_any_names(kinds: str, place: Path) -> None:
    """Also those that outputs, inputs and the inside of a file have elsewhere."""
    names = {"numbers": ["input", "logits", "network/mean"], "categories": ["predicted", "_network/x", "label "]}
    used = [name for kind in names for name in names[kind] if kinds in (kind, "both")]
    made = [
        [(k * 7 % 5 if name in names["numbers"] else "abc"[k % 3]) for name in used] + ["xy"[k % 2]] for k in range(60)
    ]
    table = write_csv(place / "t.csv", [*used, "y"], made)
    assert (
        moonfed(
            "run", "--data", table, "--label", "y", "--parties", "2", "--rounds", "1", "--epochs", "1", "--out", "run"
        ).code
        == 0
    )
    path = export(load("run"), "m.onnx")
    facts = json.loads(Path("m.onnx.json").read_text())
    assert facts["outputs"][0]["name"] == ("logits" if kinds == "categories" else "logits_")
    columns: dict[str, Any] = {
        column["name"]: np.array([row[k] for row in made], dtype=object if column["type"] == "string" else float)
        for k, column in enumerate(facts["inputs"])
    }
    probabilities = runtime.InferenceSession(str(path)).run(["probabilities"], columns)[0]
    assert probabilities == pytest.approx(predict("run", table).probabilities, abs=2e-6)


def test_a_pt2_of_a_table_names_its_inputs_in_their_order(trained: Path, place: Path) -> None:
    export(load(trained / "run"), "m.pt2")
    facts = json.loads(Path("m.pt2.json").read_text())
    assert facts["inputs"] == [{"name": "input", "type": "float32", "shape": ["batch", len(facts["features"])]}]
    assert facts["columns"] == json.loads((trained / "model.onnx.json").read_text())["columns"]


def test_pictures_sounds_texts_and_numbers_are_described_too(place: Path) -> None:
    write_images(place / "images", each=12)
    for k in range(12):
        tone(place / "sounds" / ("low", "high")[k % 2] / f"{k}.wav", 300 + 900 * (k % 2))
    write_csv(place / "texts.csv", ["text", "label"], [[("good film", "bad film")[k % 2], k % 2] for k in range(40)])
    np.savez("rows.npz", x=np.random.RandomState(0).randn(40, 3) * 9 + 5, y=np.arange(40) % 2)
    facts: dict[str, Any] = {}
    for name, extra in (("images", []), ("sounds", []), ("texts.csv", ["--text", "text"]), ("rows.npz", [])):
        words = ["--parties", "2", "--rounds", "1", "--epochs", "1", "--partition", "iid", *extra]
        answer = moonfed("run", "--data", name, *words, "--out", f"run {name}")
        assert answer.code == 0, answer.err
        assert moonfed("export", f"run {name}", "-o", f"{name}.onnx").code == 0
        facts[name] = json.loads(Path(f"{name}.onnx.json").read_text())
        session = runtime.InferenceSession(f"{name}.onnx")
        shape = facts[name]["inputs"][0]["shape"]
        assert session.get_inputs()[0].shape == shape
        assert shape[0] == "batch"
        assert [output["name"] for output in facts[name]["outputs"]] == ["logits", "probabilities", "predicted"]
    assert facts["images"]["classes"] == ["bright", "dark"]
    assert facts["images"]["normalisation"]["applied_by"] == "the model"
    assert facts["sounds"]["normalisation"]["applied_by"] == "the caller"
    assert facts["sounds"]["spectrogram"]["rate"] == 8000
    assert facts["texts.csv"]["text"]["words"] == ["film", "bad", "good"]
    assert facts["rows.npz"]["normalisation"]["mean"] == pytest.approx([5, 5, 5], abs=5)


def test_the_model_of_fit_is_described_as_that_of_a_run_folder(place: Path) -> None:
    people(place / "people.csv")
    settings: Any = {"label": "kind", "party": "site", "rounds": 1, "epochs": 1, "progress": False}
    result = fit("mlp", "people.csv", "fedavg", out="run", **settings)
    export(result.model, "a.onnx")
    export(load("run"), "b.onnx")
    assert Path("a.onnx.json").read_bytes() == Path("b.onnx.json").read_bytes()
    assert Path("a.onnx").read_bytes() == Path("b.onnx").read_bytes()


def test_probabilities_and_class_of_pictures(place: Path) -> None:
    assert moonfed("run", *SMALL, "--out", "run").code == 0
    model = load("run")
    session = runtime.InferenceSession(str(export(model, "m.onnx")))
    rows = np.random.RandomState(0).randint(0, 255, (7, 1, 8, 8), dtype=np.uint8)
    logits, probabilities, predicted = session.run(None, {"input": rows})
    assert probabilities == pytest.approx(model.predict_proba(rows), abs=2e-6)
    assert list(predicted) == list(model.predict(rows))
    assert logits.shape == (7, 10)
