"""Figures of probabilities agree with scikit-learn, and every result reports them."""

import json
from pathlib import Path

import numpy as np
import pytest
from commands import QUICK, moonfed
from sklearn import metrics as reference
from user_rows import write_csv

from moonfed import fit, predict
from moonfed.core.seeds import generator
from moonfed.training import metrics

HEADER = ["site", "age", "dose", "ill"]
ROWS = [
    [("north", "south")[k % 2], age + k / 1000, k % 7, ("no", "yes")[int(age + 9 * (k % 3) > 55)]]
    for k, age in enumerate(generator(0, "tests", "ages").integers(20, 80, size=160).tolist())
]
WORDS = ["--label", "ill", "--rounds", "2", "--epochs", "2", "--batch", "8"]


def drawn(rows: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = generator(seed, "tests", "metrics")
    probabilities = rng.dirichlet(np.ones(classes), size=rows).round(2)  # rounded: some are equal
    return probabilities / probabilities.sum(1, keepdims=True), rng.integers(0, classes, size=rows)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("classes", [2, 5])
def test_log_loss_and_brier_score_are_those_of_scikit_learn(classes: int, seed: int) -> None:
    p, y = drawn(300, classes, seed)
    assert metrics.log_loss(p, y) == pytest.approx(reference.log_loss(y, p, labels=range(classes)))
    one_hot = np.eye(classes)[y]
    expected = reference.brier_score_loss(y, p[:, 1]) if classes == 2 else ((p - one_hot) ** 2).sum(1).mean()
    assert metrics.brier(p, y) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(3))
def test_auc_sensitivity_and_specificity_are_those_of_scikit_learn(seed: int) -> None:
    p, y = drawn(300, 2, seed)
    assert len(np.unique(p[:, 1])) < 300, "ties count half"
    assert metrics.auc(p, y) == pytest.approx(reference.roc_auc_score(y, p[:, 1]))
    said = p.argmax(1)
    assert metrics.sensitivity(p, y) == pytest.approx(reference.recall_score(y, said))
    assert metrics.specificity(p, y) == pytest.approx(reference.recall_score(y, said, pos_label=0))


def test_the_calibration_error_is_the_weighted_gap_of_fifteen_bins() -> None:
    p = np.array([[0.9, 0.1], [0.9, 0.1], [0.3, 0.7], [0.5, 0.5]])
    y = np.array([0, 1, 1, 0])
    # (0.867, 0.933]: two rows, one right, confidence 0.9; (0.667, 0.733]: right, 0.7; (0.467, 0.533]: right, 0.5
    assert metrics.ece(p, y) == pytest.approx((2 * abs(0.5 - 0.9) + abs(1 - 0.7) + abs(1 - 0.5)) / 4)
    certain = np.eye(3)[[0, 1, 2]]
    assert metrics.ece(certain, np.array([0, 1, 2])) == 0
    assert metrics.ece(certain, np.array([1, 2, 0])) == 1


def test_a_figure_that_the_rows_do_not_define_is_none() -> None:
    p, y = np.array([[0.2, 0.8], [0.6, 0.4]]), np.array([1, 1])
    found = metrics.probability_metrics(p, y)
    assert (found["auc"], found["specificity"], found["sensitivity"]) == (None, None, 0.5)
    assert set(metrics.probability_metrics(p[:0], y[:0]).values()) == {None}
    assert list(metrics.probability_metrics(*drawn(9, 3))) == ["log_loss", "brier", "ece"]
    assert metrics.log_loss(np.array([[1.0, 0.0]]), np.array([1])) == pytest.approx(
        reference.log_loss([1], [[1, 0]], labels=[0, 1])
    )


def test_an_evaluation_has_the_figures_of_what_predict_says_of_the_test_rows(place: Path) -> None:
    write_csv(place / "people.csv", HEADER, ROWS)
    said = moonfed("run", "--data", "people.csv", "--party", "site", *WORDS, "--out", "run")
    assert said.code == 0, said.err
    found = json.loads((place / "run" / "evaluation.json").read_text())
    again = predict("run", "people.csv").metrics_on_new_rows
    assert {k: found[k] for k in again} == {k: pytest.approx(v, rel=1e-6) for k, v in again.items()}
    assert found["positive"] == "yes"
    assert found["log_loss"] == pytest.approx(found["test_loss"], rel=1e-5)
    assert metrics.metrics_text(found) in said.out
    parties = found["by_party"].values()
    for name in ("accuracy", "log_loss", "brier"):  # means over rows: those of the whole follow from the parties'
        whole = sum(party["test_rows"] * party[name] for party in parties) / sum(
            party["test_rows"] for party in parties
        )
        assert whole == pytest.approx(found[name])
    assert "parties" not in found, "one place for what is said of a party"
    assert not any("rows" in party for party in parties), "rows for training or for testing?"


def test_run_compare_and_predict_report_the_figures(place: Path) -> None:
    write_csv(place / "people.csv", HEADER, ROWS)
    data = ["--data", "people.csv", "--party", "site", *WORDS]
    answer = moonfed("run", *data, "--json").value
    assert set(answer["metrics"]) == {*metrics.METRIC_NAMES, "positive"}
    assert set(answer["by_party"]) == {"north", "south"}
    several = moonfed("compare", "moon", "fedavg", "--seeds", "0,1", *data, "--json").value
    assert several[0]["metrics"]["brier"]["n"] == 2
    shown = moonfed("compare", "moon", "fedavg", "--seeds", "0,1", *data, "--resume").out
    assert "Brier score" in shown
    assert "the positive class is yes" in shown
    folder = several[0]["folders"][0]
    assert "on the other rows: log loss " in moonfed("predict", folder, "people.csv", "-o", "p.csv").out
    answer = moonfed("predict", folder, "people.csv", "--json").value
    assert answer["metrics"]["log_loss"] != answer["metrics_on_new_rows"]["log_loss"]
    write_csv(place / "unlabelled.csv", HEADER[:3], [row[:3] for row in ROWS])
    assert predict(folder, "unlabelled.csv").metrics == {}


def test_more_than_two_classes_have_no_auc_and_personal_models_have_means(place: Path) -> None:
    for name in ("moon", "solo"):
        assert moonfed("run", *QUICK, "--rounds", "1", "--algorithm", name, "--out", name).code == 0
        found = json.loads((place / name / "evaluation.json").read_text())
        assert "auc" not in found
        assert found["log_loss"] == pytest.approx(found["test_loss"], rel=1e-5)


def test_a_result_has_the_figures_of_its_final_model(place: Path) -> None:
    write_csv(place / "people.csv", HEADER, ROWS)
    result = fit("mlp", "people.csv", label="ill", parties=2, rounds=1, epochs=1, seeds=[0, 1], progress=False)
    first, second = (run.metrics for run in result.runs)
    assert result.metrics["ece"] == pytest.approx((first["ece"] + second["ece"]) / 2)  # type: ignore[operator]
    assert set(result.metrics) == set(metrics.METRIC_NAMES)
