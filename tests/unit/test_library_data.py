"""Data that comes in from Python: its many forms, its parties, and what is none."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from sklearn.datasets import load_wine
from torch.utils.data import TensorDataset
from worlds import some_digits

from moonfed import fit
from moonfed.core.errors import UserError

SHORT: dict[str, Any] = {"parties": 4, "rounds": 2, "epochs": 1, "progress": False}
WINE: Any = load_wine()
X, Y = WINE["data"], WINE["target"]
SITES = np.array(["north", "south", "west"])[np.arange(len(Y)) % 3]


FORMS = [
    "arrays",
    "tensors",
    "floats for labels",
    "words for labels",
    "16 bits",
    "a torch data set",
    "a file",
    "a Dataset",
]


@pytest.mark.trains
@pytest.mark.parametrize("form", FORMS)
def test_data_comes_in_many_forms_and_labels_come_back_as_they_were(form: str, place: Path) -> None:
    names = np.array(["barolo", "grignolino", "barbera"])[Y]
    np.savez(place / "wine.npz", x=X, y=Y)
    data: Any = {
        "arrays": (X, Y),
        "tensors": (torch.tensor(X), torch.tensor(Y)),
        "floats for labels": (X, Y.astype(float)),
        "words for labels": (X.tolist(), names.tolist()),
        "16 bits": (torch.tensor(X).bfloat16(), torch.tensor(Y)),
        "a torch data set": TensorDataset(torch.tensor((X - X.mean(0)) / X.std(0)).float(), torch.tensor(Y)),
        "a file": str(place / "wine.npz"),
        "a Dataset": some_digits(),
    }[form]
    result = fit(None, data, "fedavg", **(SHORT | {"rounds": 4, "epochs": 4, "lr": 0.05, "partition": "iid"}))
    if form in ("a Dataset", "a torch data set"):
        assert result.model.classes.dtype.kind == "i"
        return
    said = result.predict(X)
    truth = names if form == "words for labels" else Y.astype(str) if form == "a file" else Y
    assert float(np.mean(said == truth)) > 0.85
    assert set(said) <= set(truth)
    assert said.dtype.kind == ("f" if form == "floats for labels" else np.asarray(truth).dtype.kind)


def test_parties_of_their_own_are_judged_on_their_own_test_rows() -> None:
    result = fit("mlp", (X, Y, SITES), "fedavg", rounds=3, epochs=5, lr=0.05, progress=False)
    assert list(result.accuracy_by_party) == ["north", "south", "west"]
    lines = result.runs[0].evaluation["by_party"]
    rows = [lines[site]["test_rows"] for site in result.accuracy_by_party]
    assert sum(n * a for n, a in zip(rows, result.accuracy_by_party.values(), strict=True)) / sum(
        rows
    ) == pytest.approx(result.accuracy)


def test_test_rows_may_be_named() -> None:
    held = np.arange(len(Y)) % 4 == 0
    result = fit("mlp", (X[~held], Y[~held]), "fedavg", test=(X[held], Y[held]), batch=8, **SHORT)
    assert result.accuracy == pytest.approx(float(np.mean(result.predict(X[held]) == Y[held])))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("nowhere", 'no data set "nowhere" and no such file or folder; known: cifar10'),
        ((X,), r"data is \(x, y\) or \(x, y, party\), a torch Dataset, a name or a path, got tuple"),
        (3, "got int"),
        ((X, Y[:-1]), "needs one value for each of the 178 rows"),
        ((X, Y * 0), "only one class"),
        ((X, X[:, 0]), "needs integers or strings"),
        ((X, Y, [{0}] * 178), r"the data party needs integers or strings, got \{0\}"),
        ((np.full_like(X, np.nan), Y), "178 bad rows of 178"),
        ((X, ["barolo", None] * 89), r"89 bad rows of 178: the data row 1 \(y is empty\)"),
        ((X, ["barolo", math.nan] * 89), r"the data row 1 \(y is empty\)"),
        ((X, pandas.Series([1, 2, None, 4], dtype="Int64").repeat(44)), "one value for each of the 178 rows"),
        ((X[:176], pandas.Series([1, 2, None, 4], dtype="Int64").repeat(44)), r"row 88 \(y is empty\)"),
        ((X, np.where(Y == 1, np.nan, Y)), r"71 bad rows of 178: the data row 59 \(y is empty\)"),
        ({"x": X, "y": Y}, "got dict"),
        (([[1], [1, 2]], [0, 1]), "the data cannot be taken as arrays"),
    ],
)
def test_data_that_is_none_is_refused(data: Any, words: str, place: Path) -> None:
    with pytest.raises(UserError, match=words):
        fit("mlp", data, "fedavg", **SHORT)
