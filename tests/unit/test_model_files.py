"""A run's model put to use: predictions, and files that other programs read."""

import csv
import io
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import SMALL, moonfed, refused
from custom_encoders import ALL
from PIL import Image

from moonfed import export, fit, load, predict
from moonfed.core.errors import UserError
from moonfed.data.catalog.digits import digits

PEOPLE = "age,job,site,label\n" + "".join(
    f"{20 + k % 40},{('cook', 'nurse')[k % 2]},{'ab'[k % 3 == 0]},{('no', 'yes')[k % 40 > 20]}\n" for k in range(120)
)
RAW = digits().test_inputs[:20]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "run"
    assert moonfed("run", *SMALL, "--epochs", "4", "--out", folder).code == 0
    return folder


def save_digits(path: Path, labelled: bool = True) -> Path:
    data = digits()
    extra: dict[str, Any] = {"y": data.test_labels.numpy()} if labelled else {}
    np.savez(path, x=data.test_inputs.numpy()[:, 0], **extra)
    return path


def test_predictions_are_what_the_run_measured(trained: Path, place: Path) -> None:
    answer = moonfed("predict", trained, save_digits(place / "new.npz"), "--json")
    last = json.loads((trained / "rounds.jsonl").read_text().splitlines()[-1])
    assert answer.value["accuracy"] == pytest.approx(last["accuracy"])
    rows = answer.value["rows"]
    assert len(rows) == 382
    assert all(sum(row["probabilities"].values()) == pytest.approx(1) for row in rows)
    assert rows[3]["row"] == "new.npz row 3"


def test_predictions_go_to_a_file_or_to_stdout(trained: Path, place: Path) -> None:
    new = save_digits(place / "new.npz", labelled=False)
    answer = moonfed("predict", trained, new, "-o", "found.csv")
    assert answer.out == "382 rows predicted; found.csv\n"
    assert moonfed("predict", trained, new).out == Path("found.csv").read_text()
    rows = list(csv.DictReader(io.StringIO(Path("found.csv").read_text())))
    assert list(rows[0]) == ["row", "predicted", *(f"p({k})" for k in range(10))]
    for row in rows[:20]:
        assert max(range(10), key=lambda k: float(row[f"p({k})"])) == int(row["predicted"])


def test_a_folder_of_pictures_is_judged_too(trained: Path, place: Path) -> None:
    data = digits()
    for k in range(6):
        (place / "new" / str(k % 2)).mkdir(parents=True, exist_ok=True)
        Image.fromarray(data.test_inputs[k, 0].numpy()).save(place / "new" / str(k % 2) / f"{k}.png")
    found = moonfed("predict", trained, "new", "--json").value
    expected = load(trained).predict(data.test_inputs[:6])
    by_name = {Path(row["row"]).stem: row["predicted"] for row in found["rows"]}
    assert by_name == {str(k): name for k, name in enumerate(expected)}


@pytest.mark.trains
def test_a_table_is_read_as_the_training_rows_were_though_they_are_gone(place: Path) -> None:
    Path("people.csv").write_text(PEOPLE)
    asked = ["--data", "people.csv", "--party", "site", "--rounds", "3", "--epochs", "10", "--lr", "0.1"]
    assert moonfed("run", *asked, "--out", "run").code == 0
    lines = PEOPLE.splitlines()
    Path("people.csv").unlink()
    Path("new.csv").write_text("\n".join(["job,age", *(f"{r.split(',')[1]},{r.split(',')[0]}" for r in lines[1:9])]))
    found = predict("run", "new.csv")
    assert found.classes == ["no", "yes"]
    assert found.labels is None
    assert found.predicted == [row.split(",")[3] for row in lines[1:9]]
    assert moonfed("export", "run", "-o", "m.pt2").code == 0
    some = ["job,age,site,label", "cook,30,,no", "nurse,31,a,", "cook,60,b,yes"]
    Path("some.csv").write_text("\n".join(some))
    assert "3 rows predicted, " in moonfed("predict", "run", "some.csv").err, (
        "what is right of them goes beside the rows"
    )
    Path("pictures").mkdir()
    assert "pictures is a folder, the model was trained on table" in refused(moonfed("predict", "run", "pictures"))
    judged = predict("run", "some.csv")
    assert judged.labels == ["no", "", "yes"], "labels and parties of rows to come may be missing, one by one"
    assert judged.accuracy == np.mean([judged.predicted[0] == "no", judged.predicted[2] == "yes"])
    Path("none.csv").write_text("\n".join(line[: line.rfind(",") + 1] if k else line for k, line in enumerate(some)))
    assert predict("run", "none.csv").accuracy is None


@pytest.mark.trains
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_numbers_are_standardised_inside_the_model(seed: int, place: Path) -> None:
    rows = 5000 + 300 * np.random.RandomState(0).randn(200, 4)
    labels = (rows[:, 0] > 5000).astype(int)
    np.savez("rows.npz", x=rows, y=labels)
    settings: dict[str, Any] = {"parties": 2, "partition": "iid", "rounds": 2, "epochs": 5, "lr": 0.05, "seeds": seed}
    result = fit("mlp", "rows.npz", "fedavg", out="run", progress=False, **settings)
    read = load("run")
    assert read(torch.tensor(rows)).dtype == torch.float32
    assert torch.equal(read(torch.tensor(rows)), result.model(torch.tensor(rows)))
    found = predict("run", "rows.npz")
    assert found.probabilities == pytest.approx(read.predict_proba(rows), abs=1e-12)
    assert found.accuracy is not None
    assert found.accuracy > 0.8


def loaded_pt2(path: Path) -> Any:
    return torch.export.load(str(path)).module()


def loaded_onnx(path: Path) -> Any:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(path))
    return lambda x: torch.from_numpy(session.run(["logits"], {"input": x.numpy()})[0])


@pytest.mark.parametrize("name", ["cnn", "batch_norm", "group_norm", "Attentive", "LSTM"])
@pytest.mark.parametrize("kind", ["pt2", "onnx"])
@pytest.mark.filterwarnings("ignore")
def test_an_exported_model_says_what_the_model_says(name: str, kind: str, place: Path) -> None:
    model = fit(ALL.get(name, name), "digits", "fedavg", parties=4, rounds=1, epochs=1, progress=False).model
    path = export(model, place / f"model.{kind}")
    read = loaded_pt2(path) if kind == "pt2" else loaded_onnx(path)
    for rows in (1, 20):
        assert torch.allclose(read(RAW[:rows]), model(RAW[:rows]), atol=1e-5), "for a batch of any size"


@pytest.mark.filterwarnings("ignore")
def test_an_exported_model_has_no_pickle_no_rows_and_no_paths_in_it(trained: Path, place: Path) -> None:
    for name in ("m.pt2", "m.onnx"):
        answer = moonfed("export", trained, "-o", name)
        assert answer.code == 0, answer.err
        gives = "logits" if name == "m.pt2" else "logits, probabilities, predicted"
        takes = "takes batch x 1 x 8 x 8"
        assert answer.out == f"global model, {takes}, gives {gives} of 10 classes; {name}, {name}.json\n"
        assert str(Path(torch.__file__).parent).encode() not in Path(name).read_bytes()
    with zipfile.ZipFile("m.pt2") as archive:
        held = {name.split("/", 1)[1]: archive.read(name) for name in archive.namelist()}
    assert held["data/sample_inputs/model.pt"] == b"", "torch would keep the dry run's rows here, as a pickle"
    for name, content in held.items():
        assert not content.startswith((b"\x80\x02", b"\x80\x04", b"PK")), name
        assert b".py" not in content, name
    assert json.loads(held["extra/moonfed.json"]) == json.loads(Path("m.pt2.json").read_text())
    weights = {name: len(content) for name, content in held.items() if name.startswith("data/weights/weight_")}
    read = load(trained)
    assert sum(weights.values()) == sum(4 * t.numel() for t in read.state_dict().values()), "plain numbers"


def test_an_encoder_of_ones_own_is_named_again_and_must_be_the_same(place: Path) -> None:
    code = "from torch import nn\ndef net(shape): return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU())\n"
    Path("mine.py").write_text(code)
    words = [word for word in SMALL if word not in ("--model", "mlp")]
    assert moonfed("run", *words, "--model", "mine.py:net", "--out", "run").code == 0
    new = save_digits(place / "new.npz")
    assert "name its code with --model FILE.py:NAME" in refused(moonfed("predict", "run", new))
    answer = moonfed("predict", "run", new, "--model", "mine.py:net", "--json")
    last = json.loads(Path("run/rounds.jsonl").read_text().splitlines()[-1])
    assert answer.value["accuracy"] == pytest.approx(last["accuracy"])
    Path("mine.py").write_text(code + "# another\n")
    assert "the file is another one" in refused(moonfed("export", "run", "-o", "m.pt2", "--model", "mine.py:net"))


def test_what_cannot_be_used_is_refused(trained: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez("wide.npz", x=np.zeros((3, 9, 9), dtype=np.uint8))
    assert moonfed("run", *SMALL, "--algorithm", "solo", "--out", "solo").code == 0
    for asked, words in (
        (("predict", "nowhere", "wide.npz"), "nowhere holds no run"),
        (("predict", trained, "nothing.npz"), "no file or folder nothing.npz"),
        (("predict", trained, "wide.npz"), "has rows of shape 1x9x9, the training rows have 1x8x8"),
        (("predict", trained, "wide.npz", "-o", "found.txt"), "-o needs a file that ends in .csv"),
        (("predict", trained, "wide.npz", "--model", "mlp"), "of this package; omit --model"),
        (
            ("predict", "solo", "wide.npz"),
            "a model for each party; choose one with --party, a number from 0 to 3",
        ),
        (("predict", "solo", "wide.npz", "--party", "4"), "a number from 0 to 3, got 4"),
        (("predict", trained, "wide.npz", "--party", "0"), "is of moon, which has one global model; omit --party"),
        (("export", trained, "-o", "m.bin"), "-o needs a file that ends in .pt2 or .onnx"),
        (("export", trained, "-o", "nowhere/m.pt2"), "in a folder that is there"),
    ):
        assert words in refused(moonfed(*asked))
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(UserError, match=r"pip install moonfed\[onnx\]"):
        export(load(trained), "m.onnx")


def test_a_run_that_is_not_finished_has_a_model_too(place: Path) -> None:
    fit("mlp", "digits", parties=4, rounds=3, epochs=1, out="run", callbacks=[lambda row: True], progress=False)
    assert moonfed("export", "run", "-o", "m.pt2").out.startswith("global model of round 1, takes")


def test_a_net_that_decides_by_its_numbers_cannot_be_written_down(place: Path) -> None:
    class Undecided(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(64, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = self.layer(x.flatten(1))
            return out if bool(out.sum() > 0) else -out

    model = fit(Undecided, "digits", "fedavg", parties=4, rounds=1, epochs=1, progress=False).model
    with pytest.raises(UserError, match=r"cannot be written down as a graph by torch\.export: "):
        export(model, "m.pt2")


def test_a_net_with_an_operation_that_onnx_lacks_is_refused_with_the_way_out(place: Path) -> None:
    pytest.importorskip("onnxscript")

    class Unusual(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(64, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x.flatten(1)) * torch.special.bessel_j0(x.detach().flatten(1)[:, :8])

    options: Any = {"parties": 4, "rounds": 1, "epochs": 1, "progress": False, "engine": "sequential"}
    model = fit(Unusual, "digits", "fedavg", **options).model
    with pytest.raises(UserError, match=r"cannot be written as ONNX: .*bessel_j0.*; \.pt2 can hold it"):
        export(model, "m.onnx")
    assert export(model, "m.pt2").exists()
