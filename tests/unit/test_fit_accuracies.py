"""Accuracies that fit and compare return: on which rows they are, and where there are none."""

from pathlib import Path
from typing import Any

import pytest
from commands import moonfed
from torch import Tensor, nn
from user_rows import write_csv

from moonfed import compare, fit
from moonfed.core.errors import UserError


def test_a_party_without_test_rows_has_no_accuracy(tmp_path: Path):
    rows = [[k % 7, 10 * (k % 2) + k % 5, "xy"[k % 2], "ab"[k % 3 == 0]] for k in range(60)]
    write_csv(tmp_path / "train.csv", ["age", "weight", "kind", "site"], [*rows, [3, 1, "x", "c"], [4, 11, "y", "c"]])
    write_csv(tmp_path / "test.csv", ["age", "weight", "kind", "site"], rows[:20])
    names: dict[str, Any] = {"label": "kind", "party": "site", "test": str(tmp_path / "test.csv")}
    for method in ("fedavg", "ditto"):
        found = fit("mlp", str(tmp_path / "train.csv"), method, rounds=1, seeds=[0, 1], **names).accuracy_by_party
        assert found["c"] is None
        assert all(isinstance(found[site], float) for site in "ab")


def test_a_party_named_global_does_not_hide_the_global_model_of_ditto(tmp_path: Path):
    rows: list[Any] = [[k % 7, 10 * (k % 2) + k % 5, "xy"[k % 2], ("global", "b")[k % 3 == 0]] for k in range(80)]
    write_csv(tmp_path / "rows.csv", ["age", "weight", "kind", "site"], rows)
    found = fit("mlp", str(tmp_path / "rows.csv"), "ditto", rounds=1, label="kind", party="site").runs[0].models
    assert set(found) == {"global model", "global", "b"}


def test_accuracies_on_different_rows_say_so():
    both = compare(["fedavg", "fedper"], "mlp", parties=2, rounds=1, epochs=1, seeds=[0])
    assert [line.rpartition(", on ")[2] for line in str(both).splitlines()] == [
        "the test rows",
        "rows like each party's own",
    ]
    assert "rows like each party&#x27;s own" in both._repr_html_().replace("&#39;", "&#x27;")
    assert "on rows like each party's own" in repr(both["fedper"])
    assert " on " not in str(compare(["fedavg"], "mlp", parties=2, rounds=1, epochs=1, seeds=[0]))


def test_personal_models_on_held_out_rows_are_not_said_to_be_on_test_rows(place: Path):
    words = ("--algorithm", "fedper", "--validation", "0.2", "--parties", "2", "--rounds", "1", "--epochs", "1")
    said = moonfed("run", *words, "--model", "mlp", "--out", "run").out
    assert "final models, on all held-out rows" in said
    assert "on rows like each party's own, held out of training" in said
    (listed,) = moonfed("runs", "run", "--json").value
    assert listed["accuracy_on"] == "own held-out"
    assert "on own rows: personal models" in moonfed("runs", "run").out


class Normed(nn.Module):
    """Normalises over the rows of a batch."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(2, 8), nn.BatchNorm1d(8))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def test_a_party_of_one_row_is_refused_by_name_where_a_custom_encoder_normalises_rows(tmp_path: Path):
    rows: list[Any] = [[k % 7, 10 * (k % 2), "xy"[k % 2], "ab"[k % 3 == 0]] for k in range(60)]
    write_csv(tmp_path / "rows.csv", ["age", "weight", "kind", "site"], [*rows, [3, 1, "x", "lone"]])
    write_csv(tmp_path / "test.csv", ["age", "weight", "kind", "site"], rows[:20])
    names: dict[str, Any] = {"label": "kind", "party": "site", "test": str(tmp_path / "test.csv")}
    with pytest.raises(UserError, match=r"party lone trains on 1 row at a time, .* or leave out party lone"):
        fit(Normed, str(tmp_path / "rows.csv"), "fedavg", rounds=1, **names)
