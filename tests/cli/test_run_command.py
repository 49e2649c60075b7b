"""What a run leaves behind: its folder, its rows, its bytes."""

import json
import re
from pathlib import Path

import pytest
from commands import PARAMETERS, QUICK, SMALL, Answer, moonfed, rows
from safetensors.torch import load_file


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Answer]:
    """A run of moon with everything asked for, and what it answered."""
    folder = tmp_path_factory.mktemp("ran") / "run"
    return folder, moonfed("run", *SMALL, "--gamma", "--tensorboard", "--json", "--out", folder)


def test_a_run_leaves_its_settings_rounds_weights_and_checkpoint(ran: tuple[Path, Answer]) -> None:
    folder, answer = ran
    assert answer.code == 0
    assert {path.name for path in folder.iterdir()} == {
        "checkpoint", "config.json", "evaluation.json", "final.safetensors", "rounds.jsonl", "tensorboard",
    }  # fmt: skip
    config = json.loads((folder / "config.json").read_text())
    assert set(config["versions"]) == {"python", "moonfed", "torch", "numpy"}
    assert config["name"] == "moon on digits, seed 0"
    weights = load_file(folder / "final.safetensors")
    assert sum(tensor.numel() for tensor in weights.values()) == PARAMETERS
    assert weights["encoder.layers.0.weight"].shape == (128, 64)
    assert (folder / "checkpoint" / "manifest.json").exists()


def test_a_run_without_a_folder_gets_one_named_by_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ["run", *QUICK, "--rounds", "1", "--algorithm", "fedavg"]
    assert moonfed(*asked).code == 0
    assert moonfed(*asked, "--seed", "3").code == 0
    assert [re.sub(r"-\w{6}$", "", path.name) for path in sorted(Path("runs").iterdir())] == [
        "digits-fedavg-s0", "digits-fedavg-s3",
    ]  # fmt: skip
    assert moonfed(*asked).code == 2  # the same settings find the same folder, and do not write over it
    assert moonfed(*asked, "--rounds", "2", "--resume").code == 0
    assert len(list(Path("runs").iterdir())) == 2


def test_run_json_is_one_value_with_the_last_round(ran: tuple[Path, Answer]) -> None:
    folder, answer = ran
    last = rows(folder)[-1]
    accuracies = {"accuracy": last["accuracy"], "final_accuracy": last["accuracy"]}  # of two rounds, one is averaged
    final = json.loads((folder / "evaluation.json").read_text())
    more = {"metrics": {name: final[name] for name in ("log_loss", "brier", "ece")}, "by_party": {}}
    assert answer.value == {"folder": str(folder), "rounds": 2, "last": last, "failure": None} | accuracies | more


def test_a_round_has_accuracy_the_parts_of_the_loss_seconds_and_bytes(ran: tuple[Path, Answer]) -> None:
    first, second = rows(ran[0])
    assert [first["round"], second["round"]] == [1, 2]
    for row in (first, second):
        assert set(row["losses"]) == {"supervised", "contrastive"}
        assert 0 <= row["accuracy"] <= 1
        assert (row["accuracy"] * 382) % 1 == pytest.approx(0, abs=1e-9)  # a whole number of the 382 test rows
        assert 0 < row["seconds"] < 60
        assert row["cohort"] == [0, 1, 2, 3]
    assert first["losses"]["contrastive"] == 0  # nobody has a previous model yet
    assert second["losses"]["contrastive"] > 0


@pytest.mark.parametrize(
    ("algorithm", "up", "down"),
    [
        ("fedavg", PARAMETERS + 1, PARAMETERS),  # the weights and the party's share
        ("moon", PARAMETERS + 1, PARAMETERS),
        ("fednova", PARAMETERS + 2, PARAMETERS),  # and its amount of work
        ("scaffold", 2 * PARAMETERS + 1, 2 * PARAMETERS),  # and a control for every weight
        ("solo", 0, 0),
    ],
)
@pytest.mark.parametrize("cohort", [4, 2])
def test_the_bytes_of_a_round_are_those_of_the_numbers_that_travel(
    algorithm: str, up: int, down: int, cohort: int, tmp_path: Path
) -> None:
    asked = [*QUICK, "--rounds", "1", "--algorithm", algorithm, "--fraction", str(cohort / 4)]
    assert moonfed("run", *asked, "--out", tmp_path / "run").code == 0
    (row,) = rows(tmp_path / "run")
    assert (row["bytes_up"], row["bytes_down"]) == (cohort * 4 * up, cohort * 4 * down)  # float32


def test_gamma_is_recorded_for_each_party_on_request_only(ran: tuple[Path, Answer], tmp_path: Path) -> None:
    for row in rows(ran[0]):
        assert set(row["gamma"]) == {"0", "1", "2", "3"}
        assert all(value > 0 for value in row["gamma"].values())
    assert moonfed("run", *QUICK, "--rounds", "1", "--out", tmp_path / "run").code == 0
    assert "gamma" not in rows(tmp_path / "run")[0]


def test_tensorboard_reads_back_what_the_rounds_say(ran: tuple[Path, Answer]) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(ran[0] / "tensorboard")).Reload()
    written = rows(ran[0])
    assert set(read.Tags()["scalars"]) == {
        "accuracy", "test_loss", "seconds", "losses/supervised", "losses/contrastive",
    }  # fmt: skip
    for name, values in {
        "accuracy": [row["accuracy"] for row in written],
        "losses/supervised": [row["losses"]["supervised"] for row in written],
    }.items():
        assert [event.step for event in read.Scalars(name)] == [1, 2]
        assert [event.value for event in read.Scalars(name)] == pytest.approx(values, rel=1e-6)


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (["run", "--out", "mistyped"], "in mistyped"),
        (["run"], "with these settings"),
        (["compare", "moon", "fedavg", "--seeds", "0,1", "--out", "mistyped"], "in mistyped"),
    ],
)
def test_a_resume_without_a_saved_round_says_in_one_line_that_it_starts(
    words: list[str], where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    line = f"there is no saved round to resume {where}; starting from the first round"
    asked = [*words, *QUICK, "--rounds", "1"]
    first, again = moonfed(*asked, "--resume"), moonfed(*asked, "--resume")
    assert (first.code, again.code) == (0, 0)
    assert first.err.splitlines().count(line) == 1
    assert line not in again.err


def test_a_run_that_does_not_ask_to_resume_says_nothing_of_it(ran: tuple[Path, Answer]) -> None:
    assert "no saved round" not in ran[1].err
