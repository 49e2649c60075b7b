"""Temperature scaling: probabilities improve on the rows set aside, and nothing else changes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from commands import moonfed, refused
from federations import weights
from torch.nn.functional import cross_entropy
from user_rows import write_csv

from moonfed import export, fit, load, predict
from moonfed.core.errors import UserError
from moonfed.core.files import read_tensors, write_tensors
from moonfed.core.seeds import generator
from moonfed.training.calibration import calibrated, fit_temperature

ASKED = ["run", "--data", "noise.csv", "--label", "y", "--parties", "2", "--partition", "iid"]
OVERFIT = ["--monitor", "0.25", "--epochs", "10", "--lr", "0.05", "--rounds", "5"]


def drawn(rows: int, classes: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits whose softmax is the probability with which the labels were drawn."""
    rng = generator(seed, "tests", "calibration")
    logits = torch.from_numpy(2 * rng.normal(size=(rows, classes)))
    labels = [rng.choice(classes, p=p) for p in logits.softmax(1).numpy()]
    return logits, torch.tensor(labels)


@pytest.fixture
def noise(place: Path) -> Path:
    """A table of which a third of the labels are wrong."""
    rng = generator(0, "tests", "noise")
    x, wrong = rng.normal(size=(240, 6)), rng.random(240) < 0.33
    y = ((x[:, 0] > 0) ^ wrong).astype(int)
    return write_csv(place / "noise.csv", [*"abcdef", "y"], [[*a.tolist(), b] for a, b in zip(x, y, strict=True)])


@pytest.mark.parametrize("factor", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("classes", [2, 7])
def test_the_temperature_undoes_a_factor_of_calibrated_logits(factor: float, classes: int) -> None:
    logits, labels = drawn(4000, classes)
    assert fit_temperature(factor * logits, labels) == pytest.approx(factor, rel=0.1)


@pytest.mark.parametrize("seed", range(20))
def test_log_loss_on_the_rows_never_gets_worse_and_the_order_of_classes_stays(seed: int) -> None:
    rng = generator(seed, "tests", "logits")
    logits = torch.from_numpy(10 ** rng.uniform(-2, 2) * rng.normal(size=(rng.integers(1, 30), 4)))
    labels = torch.from_numpy(rng.integers(0, 4, size=len(logits)))
    after = calibrated(logits, fit_temperature(logits, labels))
    assert cross_entropy(after, labels) <= cross_entropy(logits, labels)
    assert torch.equal(after.argsort(1), logits.argsort(1))


def test_a_few_rows_that_are_all_correct_do_not_make_the_model_certain() -> None:
    logits = torch.tensor([[2.0, 0.0], [0.0, 2.0], [3.0, 0.0]])
    assert 0.5 < fit_temperature(logits, torch.tensor([0, 1, 0])) <= 1


def test_calibration_changes_probabilities_and_nothing_else(noise: Path) -> None:
    assert moonfed(*ASKED, *OVERFIT, "--out", "plain").code == 0
    said = moonfed(*ASKED, *OVERFIT, "--calibrate", "--out", "run")
    assert said.code == 0, said.err
    plain, found = (json.loads(Path(f"{name}/evaluation.json").read_text()) for name in ("plain", "run"))
    assert weights(Path("plain")) == weights(Path("run"))
    for name in ("accuracy", "test_loss", "confusion", "auc", "sensitivity", "specificity"):
        assert found[name] == plain[name], name
    assert found["uncalibrated"] == {name: plain[name] for name in ("log_loss", "brier", "ece")}
    assert found["temperature"] > 1.2, "the network has learned wrong labels by heart"
    assert found["log_loss"] < plain["log_loss"]
    assert "temperature" not in plain
    assert f"calibrated with temperature {found['temperature']:.2f}" in said.out
    assert f"log loss {plain['log_loss']:.3f}" in said.out, "before"
    assert f"log loss {found['log_loss']:.3f}" in said.out, "and after"


def test_predict_load_and_export_use_the_temperature(noise: Path) -> None:
    assert moonfed(*ASKED, *OVERFIT, "--calibrate", "--out", "run").code == 0
    found = json.loads(Path("run/evaluation.json").read_text())
    told = predict("run", "noise.csv")
    assert told.metrics_on_new_rows["log_loss"] == pytest.approx(found["log_loss"], rel=1e-6)
    saved = json.loads(Path("run/encoding.json").read_text())
    means, stds = (np.array([column[k] for column in saved["details"]["columns"]]) for k in ("mean", "std"))
    table = np.loadtxt("noise.csv", delimiter=",", skiprows=1)
    encoded = torch.from_numpy(((table[:, :6] - means) / stds).astype(np.float32))
    model = load("run")
    assert model.temperature == found["temperature"]
    assert model.predict_proba(encoded) == pytest.approx(told.probabilities, abs=1e-6)
    export(model, "model.onnx")
    session = onnxruntime.InferenceSession("model.onnx")
    columns = {name: table[:, k] for k, name in enumerate("abcdef")}
    (probabilities,) = session.run(["probabilities"], columns)
    assert np.asarray(probabilities) == pytest.approx(told.probabilities, abs=1e-5)
    assert json.loads(Path("model.onnx.json").read_text())["temperature"] == found["temperature"]
    export(model, "model.pt2")
    (logits,) = [torch.export.load("model.pt2").module()(encoded)]
    assert logits.softmax(1).detach().numpy() == pytest.approx(told.probabilities, abs=1e-5)


def test_a_result_in_python_is_calibrated_as_its_folder_is(noise: Path) -> None:
    settings: Any = {"label": "y", "parties": 2, "partition": "iid", "rounds": 2, "epochs": 5, "progress": False}
    result = fit("mlp", "noise.csv", calibrate=True, out="run", **settings)
    assert result.model.temperature == load("run").temperature == result.runs[0].evaluation["temperature"]
    again = fit("mlp", "noise.csv", calibrate=True, out="run", resume=True, **settings)
    assert again.model.temperature == result.model.temperature


def test_a_temperature_that_is_no_positive_number_is_refused(noise: Path) -> None:
    assert moonfed(*ASKED, *OVERFIT, "--rounds", "1", "--calibrate", "--out", "run").code == 0
    path = Path("run/final.safetensors")
    tensors, facts = read_tensors(path)
    for wrong in ("0", "nan", "warm"):
        write_tensors(path, tensors, **facts | {"temperature": wrong})
        with pytest.raises(UserError, match="its temperature should be a positive number"):
            load("run")


def test_calibration_without_rows_or_without_one_model_is_refused(place: Path) -> None:
    assert "--calibrate needs training rows set aside" in refused(moonfed("run", "--calibrate", "--monitor", "0"))
    assert "--calibrate needs one global model" in refused(moonfed("run", "--calibrate", "--algorithm", "solo"))
