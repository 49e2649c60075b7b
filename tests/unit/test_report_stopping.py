"""What the page and the list of runs say of runs with early stopping, calibration and several hold-outs."""

from pathlib import Path

import pytest
from commands import QUICK, moonfed
from user_rows import people

METHODS = ("fedavg", "moon")
HOLDOUTS, SEEDS = (0, 1, 2), (0, 1)
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
