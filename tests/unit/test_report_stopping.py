"""What the page and the list of runs say of runs with early stopping, calibration and several hold-outs."""

import json
import shutil
import statistics
from pathlib import Path
from typing import Any

import pytest
from commands import QUICK, moonfed
from user_rows import people

METHODS = ("fedavg", "moon")
KEPT = "which is selected by the loss on training rows set aside (--patience)"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two calibrated methods with patience over three hold-outs and two seeds; no trial can use its patience up."""
    folder = tmp_path_factory.mktemp("kept")
    words = ["--data", people(folder / "people.csv"), "--label", "kind", "--party", "site", "--batch", "4"]
    words += ["--rounds", "2", "--epochs", "1", "--patience", "5", "--calibrate", "--monitor", "0.25"]
    words += ["--holdout-seeds", "0-2", "--seeds", "0,1", "--out", folder / "runs"]
    answer = moonfed("compare", *METHODS, *words)
    assert answer.code == 0, answer.err
    return folder / "runs"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plain") / "runs"
    assert moonfed("compare", "fedavg", *QUICK, "--rounds", "8", "--seeds", "0,1", "--out", folder).code == 0
    return folder


def page_of(*folders: Path) -> str:
    answer = moonfed("report", *folders, "-o", "page.html", "--tsne", "0")
    assert answer.code == 0, answer.err
    return Path("page.html").read_text()


def test_a_page_of_runs_with_patience_says_that_the_best_round_is_selected_and_on_what(kept, place):
    page = page_of(kept)
    assert f"Accuracies are on the test rows, of the best round, {KEPT}." in page
    assert "accuracy (best round), %" in page
    assert "never selected" not in page
    assert "last rounds" not in page


def test_a_page_of_runs_without_patience_says_that_no_best_round_is_selected(plain, place):
    page = page_of(plain)
    assert "averaged over the last rounds; the best round is never selected." in page
    assert "--patience" not in page


def test_groups_with_and_without_patience_are_distinguished(kept, plain, place):
    page = page_of(kept, plain)
    assert f"in 1 of 2 groups of the best round, {KEPT}, in the others averaged over the last rounds." in page
    assert "never selected" not in page
    first, second = (group["title"] for group in moonfed("report", kept, plain, "--json").value["settings"])
    windows = {"digits": "mean of the last 2 rounds", "people": "best round"}
    assert f"Accuracy: {windows[first]} ({first}); {windows[second]} ({second}). ±" in page


def test_a_page_of_several_hold_outs_does_not_call_them_seeds(kept, place):
    page = page_of(kept)
    assert "Lines are means over the trials, bands reach from the lowest to the highest trial." in page
    assert "predicted correctly, mean over the hold-outs." in page
    assert "(column), in %, mean over the hold-outs." in page
    assert "own test rows; mean over the hold-outs." in page
    assert "by trial, and the mean over the trials; empty if a trial never reaches it." in page
    assert "the seeds" not in page
    assert "6 seeds" not in page


def test_parties_of_simulated_splits_are_averaged_over_the_hold_outs(place):
    words = ["--data", people(place / "people.csv"), "--label", "kind", "--parties", "2"]
    words += ["--rounds", "1", "--epochs", "1", "--seeds", "0", "--holdout-seeds", "0-1", "--out", "runs"]
    answer = moonfed("compare", "fedavg", *words)
    assert answer.code == 0, answer.err
    page = page_of(Path("runs"))
    assert "worst, median and best party are averaged over the hold-outs." in page
    assert "the seeds" not in page


def test_a_page_of_one_hold_out_speaks_of_seeds(plain, place):
    page = page_of(plain)
    assert "Lines are means over the seeds, bands reach from the lowest to the highest seed." in page
    assert "predicted correctly, mean over the seeds." in page
    assert "hold-out" not in page


def test_the_list_of_runs_says_that_runs_with_patience_show_the_best_round_also_if_none_stopped(kept, plain):
    listed = moonfed("runs", kept, "--json").value
    assert {(run["state"], run["patience"]) for run in listed} == {("finished", 5)}
    assert all(run["accuracy"] == run["final_accuracy"] for run in listed)
    note = "of runs with --patience, both are those of the best round"
    assert note in " ".join(moonfed("runs", kept).out.split())
    assert note not in " ".join(moonfed("runs", plain).out.split())


def evaluations(folder: Path, method: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((folder / method).rglob("evaluation.json"))]


def test_the_page_gives_temperature_and_log_loss_before_calibration_of_each_calibrated_method(kept, plain, place):
    texts: list[str] = []
    for method in METHODS:
        found = evaluations(kept, method)
        assert len(found) == 6
        temperature = statistics.fmean(one["temperature"] for one in found)
        before = statistics.fmean(one["uncalibrated"]["log_loss"] for one in found)
        texts.append(f"{method} with temperature {temperature:.2f} (log loss before: {before:.3f})")
    assert f" Calibrated: {', '.join(texts)}.</p>" in page_of(kept)
    assert "Calibrated:" not in page_of(plain)


@pytest.mark.parametrize("damage", [{"uncalibrated": 3}, {"uncalibrated": {}}, {"temperature": "x"}])
def test_a_damaged_calibration_is_left_out(damage, kept, place):
    shutil.copytree(kept, "damaged")
    for path in Path("damaged").rglob("evaluation.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | damage))
    page = page_of(Path("damaged"))
    assert "Probabilities of the final models" in page
    assert "Calibrated:" not in page
