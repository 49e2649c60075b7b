"""What compare, partition and runs say, to people and to programs."""

import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import PARAMETERS, QUICK, Attempt, crash_at, moonfed, refuse, rows
from matplotlib.image import imread
from sklearn.datasets import load_digits
from user_rows import people, write_csv

from moonfed.core.errors import UserError
from moonfed.experiments.every_method import every_method, shorten
from moonfed.training.registry import ALGORITHMS


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("compared") / "all"
    methods = ["fedavg", "moon:mu=5", "moon+fedavgm:server_momentum=0.9"]
    asked = ["compare", *methods, "--seeds", "0,2", *QUICK, "--rounds", "2", "--out", folder]
    assert moonfed(*asked).code == 0
    return folder, [str(part) for part in asked]


def test_compare_json_has_one_object_per_method_with_mean_std_and_seeds(compared: tuple[Path, list[str]]) -> None:
    folder, asked = compared
    found = moonfed(*asked, "--resume", "--json").value
    assert [summary["method"] for summary in found] == asked[1:4]
    for summary in found:
        slug = summary["method"].replace(":", "-")
        accuracies = [rows(folder / slug / f"seed-{seed}")[-1]["accuracy"] for seed in (0, 2)]
        assert summary["seeds"] == [0, 2]
        over, cost = summary["accuracy"], summary["cost"]
        assert [entry["value"] for entry in over["by_seed"]] == accuracies
        assert summary["final_accuracy"] == over, "of two rounds, one is averaged"
        assert over["mean"] == pytest.approx(sum(accuracies) / 2)
        assert over["std"] == pytest.approx(statistics.stdev(accuracies))
        assert summary["failures"] == []
        assert cost["bytes_up_per_round"] + cost["bytes_down_per_round"] == 4 * 4 * (2 * PARAMETERS + 1)


def test_a_method_carries_its_own_settings_and_server(compared: tuple[Path, list[str]]) -> None:
    def algorithm(slug: str) -> dict[str, Any]:
        return json.loads((compared[0] / slug / "seed-0" / "config.json").read_text())["config"]["algorithm"]

    assert algorithm("moon-mu=5")["mu"] == 5
    pair = algorithm("moon+fedavgm-server_momentum=0.9")
    assert (pair["name"], pair["server"], pair["mu"], pair["server_momentum"]) == ("moon", "fedavgm", 1, 0.9)
    assert algorithm("fedavg") == {"name": "fedavg", "server": None}


def test_compare_prints_a_table_with_every_method(compared: tuple[Path, list[str]]) -> None:
    folder, asked = compared
    answer = moonfed(*asked, "--resume")
    for method in asked[1:4]:
        accuracies = [rows(folder / method.replace(":", "-") / f"seed-{seed}")[-1]["accuracy"] for seed in (0, 2)]
        line, metrics = [line for line in answer.out.splitlines() if line.split()[:1] == [method]]
        losses = [rows(folder / method.replace(":", "-") / f"seed-{seed}")[-1]["test_loss"] for seed in (0, 2)]
        assert f"{statistics.fmean(losses):.3f}" in metrics
        assert f"{50 * sum(accuracies):.1f} ± {100 * statistics.stdev(accuracies):.1f}" in line


def test_a_comparison_of_few_rounds_shows_the_last_round_once_and_says_what_the_progress_averages(
    compared: tuple[Path, list[str]], tmp_path: Path
) -> None:
    short = moonfed(*compared[1], "--resume")
    assert "accuracy (last" in short.out
    assert "final accuracy" not in short.out.lower()
    longer = moonfed("compare", "fedavg", "--seeds", "0,1", *QUICK, "--rounds", "8", "--out", tmp_path / "longer")
    assert "final accuracy" in longer.out
    assert "Final accuracy: the last round alone." in longer.out
    assert longer.err.startswith("round 1/8  mean of 2 trials: accuracy ")


def test_a_trial_of_a_comparison_is_the_run_of_the_same_settings(
    compared: tuple[Path, list[str]], tmp_path: Path
) -> None:
    alone = ["run", *QUICK, "--rounds", "2", "--seed", "2", "--mu", "5", "--out", tmp_path / "run"]
    assert moonfed(*alone).code == 0
    one, other = (rows(path)[-1] for path in (tmp_path / "run", compared[0] / "moon-mu=5" / "seed-2"))
    assert one["cohort"] == other["cohort"]
    assert one["losses"] == pytest.approx(other["losses"], rel=1e-4)
    assert one["test_loss"] == pytest.approx(other["test_loss"], rel=1e-4)


@pytest.mark.parametrize("partition", ["dirichlet", "dirichlet-pure", "iid", "shards", "quantity", "feature-skew"])
def test_partition_json_says_who_holds_what_and_loses_no_row(partition: str) -> None:
    value = moonfed("partition", "--partition", partition, "--parties", "6", "--json").value
    bunch: Any = load_digits()
    counts = np.array(value["class_counts"])
    assert counts.shape == (6, 10)
    assert counts.sum(1).tolist() == value["sizes"]
    assert counts.sum(0).tolist() == np.bincount(bunch["target"][:1415]).tolist()
    assert value["rows"] == 1415
    assert value["mean"] == pytest.approx(1415 / 6)
    assert value["std"] == pytest.approx(np.std(value["sizes"]))


def test_feature_skew_of_texts_is_refused_in_one_line(tmp_path: Path) -> None:
    texts = write_csv(tmp_path / "t.csv", ["text", "label"], [[("good", "bad")[k % 2], k % 2] for k in range(40)])
    answer = moonfed("partition", "--data", texts, "--text", "text", "--parties", "2", "--partition", "feature-skew")
    assert answer.code == 2
    assert (
        answer.err.strip()
        .splitlines()[-1]
        .endswith("feature-skew needs inputs that are numbers, t has texts; use another --partition")
    )


def test_partition_plot_writes_a_picture_that_opens(tmp_path: Path) -> None:
    answer = moonfed("partition", "--parties", "6", "--plot", tmp_path / "split.png")
    assert answer.code == 0
    assert f"drawn to {tmp_path / 'split.png'}" in answer.out
    picture = imread(tmp_path / "split.png")
    height, width, _ = picture.shape
    assert min(height, width) > 300
    assert len(np.unique(picture.reshape(-1, picture.shape[2]), axis=0)) > 20  # there is something on it


def test_runs_shows_a_folder_by_its_true_name(tmp_path: Path) -> None:
    folder = tmp_path / "a[" / "b]:smile:"
    assert moonfed("run", *QUICK, "--rounds", "1", "--out", folder).code == 0
    assert str(folder) in moonfed("runs", tmp_path).out.replace("\n", "")


def test_runs_tells_finished_from_resumable_from_failed_from_damaged(tmp_path: Path) -> None:
    asked = ["run", *QUICK, "--rounds", "2", "--algorithm", "fedavg", "--out"]
    assert moonfed(*asked, tmp_path / "a").code == 0
    # Between the commit of the second round and the one before it: config, then state and manifest, then state.
    assert Attempt(*asked, tmp_path / "b", prepare=crash_at, given=(4, ("replace",))).end().code != 0
    assert moonfed(*asked, tmp_path / "c", "--lr", "1e30").code == 1
    assert moonfed(*asked, tmp_path / "d").code == 0
    (tmp_path / "d" / "config.json").write_text("{")
    done, begun, failed, damaged = moonfed("runs", tmp_path, "--json").value
    accuracy = rows(tmp_path / "a")[-1]["accuracy"]
    assert done == {
        "folder": str(tmp_path / "a"), "algorithm": "fedavg", "dataset": "digits", "seed": 0,
        "rounds": 2, "rounds_requested": 2, "patience": 0, "accuracy": accuracy, "final_accuracy": accuracy,
        "accuracy_on": "test", "state": "finished",
    }  # fmt: skip
    assert (begun["state"], begun["rounds"]) == ("can be resumed", 1)
    assert failed["state"].startswith("failed: the loss of party 0 is not finite at step 2 in round 1")
    assert (failed["rounds"], failed["accuracy"]) == (0, None)
    assert damaged["state"].startswith("damaged: ")
    table = moonfed("runs", tmp_path).out
    assert all(word in table for word in ("finished", "can be resumed", "failed", "damaged", f"{accuracy:.1%}"))


def test_compare_all_runs_every_method_that_fits_once_and_says_which_does_not(place: Path) -> None:
    answer = moonfed("compare", "--all", *QUICK, "--rounds", "1", "--json")
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)
    assert {entry["method"] for entry in found} == {*ALGORITHMS, "fedavg+ccvr", "fedavg (global)"} - {"fedbn"}
    for rows_of in ("test", "own test"):
        here = [e for e in found if e["accuracy_on"] == rows_of and e["method"] != e["baseline"]]
        accuracies = [entry["accuracy"]["mean"] for entry in here]
        assert accuracies == sorted(accuracies, reverse=True), "the best first"
    assert "--all leaves fedbn out: its parties keep their norm layers, and mlp has none" in answer.err
    assert "--all sets --seeds 0; give other values to change that" in answer.err
    assert {folder.name for folder in (place / "runs").glob("*/*/*")} == {"seed-0"}
    assert "--all is every method, got moon as well" in refuse(place, "compare", "moon", "--all")
    Path("some.toml").write_text('[compare]\nmethods = ["moon"]\n')
    also = "--all is every method, got methods in the table [compare] as well"
    assert also in refuse(place, "compare", "--all", "--config", "some.toml")
    Path("some.toml").write_text("[compare]\nmethods = 3\n")
    assert also in refuse(place, "compare", "--all", "--config", "some.toml")


def test_compare_all_is_short_where_nothing_else_is_given() -> None:
    assert shorten({}) == ({"train": {"rounds": 15, "epochs": 5}}, "--rounds 15 --epochs 5")
    given = {"train": {"rounds": 20, "epochs": 10}}
    assert shorten(given) == (given, "")
    own = {"data": {"path": "people.csv"}}
    assert shorten(own) == (own | {"train": {"rounds": 15}}, "--rounds 15"), "a table has epochs of its own"


def test_many_methods_on_a_table_with_parties_fit_into_80_columns(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    people(place / "people.csv")
    words = ("--data", "people.csv", "--label", "kind", "--party", "site", "--rounds", "1", "--epochs", "1")
    answer = moonfed("compare", "--all", *words)
    assert answer.code == 0, answer.err
    assert max(map(len, answer.out.splitlines())) <= 80
    head = next(line for line in answer.out.splitlines() if line.split() == ["method", "a", "b", "c"])
    assert head, "methods are rows of the table by party"
    assert "statistically" not in answer.out or "ally" not in answer.out.split()


def test_a_failed_trial_is_named_with_what_may_be_wrong_with_it(place: Path) -> None:
    answer = moonfed("compare", "fedavg", "fedadam:server_lr=1e30", "--seeds", "0,1", *QUICK, "--rounds", "2")
    assert answer.code == 1
    (line,) = [line for line in answer.err.splitlines() if line.startswith("moonfed: ")]
    assert line.startswith("moonfed: fedadam:server_lr=1e30, seed 0: the model after round 1 is not finite")
    assert "try a smaller --lr, or another --server-lr" in line
    assert line.endswith("(2 of 4 trials failed)")
    decay = moonfed("run", "--algorithm", "fedcm", "--lr-decay", "1e-300", *QUICK, "--rounds", "3")
    assert "or a --lr-decay closer to 1" in decay.err


def test_compare_all_leaves_out_what_settings_or_network_refuse(place: Path) -> None:
    """FedMA cannot reorder the units of groups; SCAFFOLD's and FedNova's sums are of SGD's steps."""
    values: Any = {"data": {"parties": 4}, "model": {"model": "mlp", "norm": "group"}, "train": {"optimizer": "adamw"}}
    methods, left_out = every_method(values)
    assert {"fedma", "scaffold", "fednova"} <= set(left_out)
    assert {*methods, *left_out} == {*ALGORITHMS, "fedavg+ccvr"}
    assert (methods[0], "fedbn" in methods) == ("fedavg", True)
    assert "adamw" in left_out["fednova"]
    assert left_out["fedma"].startswith("fedma needs a network that is a chain of layers")
    with pytest.raises(UserError, match='no encoder "nothing"'):
        every_method({"model": {"model": "nothing"}})


def test_personal_models_are_listed_apart_beside_the_global_model_on_the_same_rows(place: Path) -> None:
    answer = moonfed("compare", "fedavg", "fedper", "scaffold", "--seeds", "0", *QUICK, "--rounds", "1", "--out", "x")
    one, other = answer.out.split("personal models on each party's own rows")
    assert [line.split()[0] for line in one.splitlines() if " 1 of 1 " in line] == ["fedavg", "scaffold"]
    (reference, fedper) = [line for line in other.splitlines() if " 1 of 1 " in line]
    at_party = rows(Path("x/fedavg/seed-0"))[-1]["accuracy_at_party"]
    assert reference.split()[:2] == ["fedavg", "(global)"]
    assert f"{100 * statistics.fmean(at_party):.1f}" in reference
    assert fedper.split()[0] == "fedper"
    assert "MB in all" in answer.out, "SCAFFOLD sends twice as much"
    value = moonfed("compare", "fedavg", "fedper", "scaffold", "--seeds", "0", *QUICK, "--rounds", "1", "--out", "x",
                    "--resume", "--json").value  # fmt: skip
    assert [(entry["method"], entry["accuracy_on"], entry["baseline"]) for entry in value] == [
        ("fedavg", "test", "fedavg"),
        ("scaffold", "test", "fedavg"),
        ("fedavg (global)", "own test", "fedavg (global)"),
        ("fedper", "own test", "fedavg (global)"),
    ]
    gap = value[3]["accuracy"]["mean"] - statistics.fmean(at_party)
    assert value[3]["difference"]["mean"] == pytest.approx(gap)
    page = moonfed("report", "x", "-o", "x.html", "--json").value
    assert [len(setting["methods"]) for setting in page["settings"]] == [2, 2]
    assert page["settings"][1]["baseline"] == "fedavg (global)"
