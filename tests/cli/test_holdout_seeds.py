"""Several hold-outs in one command: every one is trained with every seed, and intervals are over hold-outs."""

import json
import statistics
from pathlib import Path

import numpy as np
import pytest
from commands import moonfed, rows
from user_rows import people, write_csv

from moonfed.experiments.compare import plan_comparison
from moonfed.experiments.holdouts import execute_plan
from moonfed.experiments.statistics import interval
from moonfed.report.grouping import settings_of
from moonfed.storage.run_record import read_runs
from moonfed.training.callbacks import Callback, Finished

HOLDOUTS, SEEDS, METHODS = (0, 1, 4), (0, 1), ("moon", "fedavg")


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("holdouts")
    table = noise(folder / "noise.csv")
    words = ["compare", *METHODS, "--data", str(table), "--label", "kind", "--party", "site", "--rounds", "2"]
    words += ["--epochs", "20", "--lr", "0.3", "--holdout-seeds", "0,1,4", "--seeds", "0,1"]
    words += ["--out", str(folder / "all")]
    answer = moonfed(*words)
    assert answer.code == 0, answer.err
    assert "hold-out 3 of 3, seed 4" in answer.err
    return words


def noise(path: Path) -> Path:
    """A table in which nothing can be learned: accuracies differ from hold-out to hold-out."""
    rng = np.random.default_rng(0)
    made = [[*rng.normal(size=4).round(3), "xy"[rng.integers(2)], "abc"[k % 3]] for k in range(150)]
    return write_csv(path, ["one", "two", "three", "four", "kind", "site"], made)


def accuracy_of(folder: Path, method: str, holdout: int, seed: int) -> float:
    return rows(folder / method / f"holdout-{holdout}" / f"seed-{seed}")[-1]["accuracy"]


def test_each_trial_is_the_run_of_its_hold_out_and_seed(asked: list[str], tmp_path: Path) -> None:
    there = Path(asked[-1]) / "moon" / "holdout-4" / "seed-1"
    alone = ["run", *asked[3:15], "--holdout-seed", "4", "--seed", "1", "--out", tmp_path / "run"]
    assert moonfed(*alone).code == 0
    one, other = (json.loads((at / "config.json").read_text()) for at in (there, tmp_path / "run"))
    assert (one["identity"], one["data"]) == (other["identity"], other["data"])
    first = json.loads((Path(asked[-1]) / "moon" / "holdout-0" / "seed-1" / "config.json").read_text())
    assert first["data"] != one["data"], "another hold-out has other test rows"


def test_means_and_intervals_are_over_hold_outs_after_the_mean_over_their_seeds(asked: list[str]) -> None:
    folder = Path(asked[-1])
    by_method = {m: [statistics.fmean(accuracy_of(folder, m, h, s) for s in SEEDS) for h in HOLDOUTS] for m in METHODS}
    assert all(len(set(found)) > 1 for found in by_method.values()), "else the figures below would show nothing"
    moon, fedavg = moonfed(*asked, "--resume", "--json").value
    for summary in (moon, fedavg):
        found = by_method[summary["method"]]
        assert summary["accuracy"]["n"] == len(HOLDOUTS)
        assert summary["accuracy"]["mean"] == pytest.approx(statistics.fmean(found))
        assert summary["accuracy"]["std"] == pytest.approx(statistics.stdev(found))
        assert [(e["holdout"], e["seed"]) for e in summary["accuracy"]["by_seed"]] == [
            (h, s) for h in HOLDOUTS for s in SEEDS
        ]
    gap = interval([a - b for a, b in zip(by_method["moon"], by_method["fedavg"], strict=True)])
    assert [moon["difference"][k] for k in ("mean", "low", "high", "n")] == pytest.approx(list(gap))


def test_the_table_says_that_its_intervals_are_over_hold_outs(asked: list[str]) -> None:
    answer = moonfed(*asked, "--resume")
    said = " ".join(answer.out.split())
    assert "3 (6 of 6 trials)" in said
    assert "Differences are paired by hold-out and seed. Intervals are Student's t over the hold-outs" in said
    assert "/METHOD/holdout-N/seed-N" in said


def test_a_report_on_the_folders_has_one_group_with_the_figures_of_the_screen(asked: list[str]) -> None:
    (setting,) = settings_of(read_runs([Path(asked[-1])]))
    moon, fedavg = moonfed(*asked, "--resume", "--json").value
    page = {method["method"]: method for method in setting.as_json()["methods"]}
    for summary in (moon, fedavg):
        assert page[summary["method"]]["accuracy"]["mean"] == pytest.approx(summary["accuracy"]["mean"])
        assert page[summary["method"]]["accuracy"]["n"] == 3
    assert page["moon"]["difference"] == moon["difference"]


class StopAtOnce(Callback):
    def on_round(self, finished: Finished) -> bool:
        return True


def test_a_command_that_is_stopped_leaves_the_next_hold_outs_to_resume(asked: list[str], tmp_path: Path) -> None:
    data = {"path": asked[4], "label": "kind", "party": "site"}
    values = {"data": data, "train": {"rounds": 2, "epochs": 1}}
    _, plan = plan_comparison(["fedavg"], "0", values, tmp_path / "all", "0-1")
    stopped = execute_plan(plan, callbacks=[StopAtOnce()])
    assert [(record.seeds.holdout, len(record.rows)) for _, record in stopped] == [(0, 1)]
    resumed = execute_plan(plan, resume=True)
    assert [(record.seeds.holdout, record.finished) for _, record in resumed] == [(0, True), (1, True)]


def test_a_folder_that_holds_a_run_is_refused_before_the_first_hold_out_is_trained(asked: list[str]) -> None:
    again = [word if word != "0,1,4" else "7,4" for word in asked]
    answer = moonfed(*again)
    assert answer.code == 2
    assert "holdout-4/seed-0 already holds moon on noise, seed 0; continue it with --resume" in answer.err
    other = moonfed(*again, "--batch", "7")
    assert other.code == 2
    assert "holdout-4/seed-0 holds a run with other settings: train.batch was " in other.err
    assert not (Path(asked[-1]) / "moon" / "holdout-7").exists()


def test_a_resume_says_at_most_once_and_only_of_the_whole_plan_that_there_is_no_round(
    asked: list[str], tmp_path: Path
) -> None:
    words = ["compare", "fedavg", *asked[3:9], "--rounds", "1", "--epochs", "1", "--seeds", "0", "--resume"]
    words += ["--out", str(tmp_path / "all")]
    said = [moonfed(*words, "--holdout-seeds", seeds).err for seeds in ("0,1", "0,2", "3,0")]
    assert [err.count("there is no saved round to resume") for err in said] == [1, 0, 0]
    assert "nothing left to do" in said[1]


@pytest.mark.parametrize("command", [["compare", "moon", "fedavg"], ["sweep", "--mu", "1,5"]])
def test_nothing_is_held_out_of_a_data_set_of_the_catalog_or_beside_test_rows(
    command: list[str], tmp_path: Path
) -> None:
    table = people(tmp_path / "people.csv")
    own = ["--data", table, "--label", "kind", "--holdout-seeds", "0-2"]
    for words, said in (
        (["--holdout-seeds", "0-2"], "data sets have fixed ones; use --data PATH"),
        ([*own, "--test", table], "names them; omit one of the two"),
        ([*own, "--holdout-seed", "1"], "got both holdout seed 1 and holdout seeds 0-2; use --holdout-seeds alone"),
        ([*own[:-1], "a"], "--holdout-seeds needs whole numbers"),
    ):
        answer = moonfed(*command, *words, "--out", tmp_path / "out")
        assert answer.code == 2
        assert said in answer.err
        assert len(answer.err.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("seeds", ["0-1", "0", "3"])
@pytest.mark.parametrize("command", [["compare", "moon", "fedavg"], ["sweep", "--mu", "1,5"]])
def test_data_with_its_own_test_rows_is_refused_before_training(command: list[str], seeds: str, tmp_path: Path) -> None:
    x = np.arange(80, dtype=np.float32).reshape(40, 2)
    np.savez(tmp_path / "rows.npz", x=x, y=np.arange(40) % 2, x_test=x[:8], y_test=np.arange(8) % 2)
    words = ["--data", tmp_path / "rows.npz", "--parties", "2", "--holdout-seeds", seeds, "--out", tmp_path / "out"]
    answer = moonfed(*command, *words)
    assert answer.code == 2
    assert "rows.npz comes with test rows, so none are held out; omit --holdout-seeds" in answer.err
    assert len(answer.err.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_sweep_has_hold_outs_and_a_config_file_may_name_them(asked: list[str], tmp_path: Path) -> None:
    words = [*asked[3:11], "--rounds", "1", "--epochs", "1", "--seeds", "0"]
    swept = moonfed("sweep", "--mu", "1,5", *words, "--holdout-seeds", "2-3", "--out", tmp_path / "s", "--json")
    assert [found["accuracy"]["n"] for found in swept.value] == [2, 2]
    (tmp_path / "c.toml").write_text('[compare]\nmethods = ["fedavg"]\nholdout_seeds = [2, 3]\n')
    told = moonfed("compare", "--config", tmp_path / "c.toml", *words, "--out", tmp_path / "c", "--json")
    assert [entry["holdout"] for entry in told.value[0]["accuracy"]["by_seed"]] == [2, 3]
