"""What a user relies on at the command line."""

import json
import os
import pty
import re
import select
import statistics
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import QUICK, SMALL, Answer, Attempt, crash_at, moonfed, rows
from matplotlib.image import imread
from safetensors.torch import load_file
from sklearn.datasets import load_digits

from moonfed.run.config import SECTIONS, flag_of
from moonfed.run.rules import all_settings

# The mlp on 8x8 pictures: 64-128-64, the projection head 64-64-256, ten classes; weights and biases.
PARAMETERS = (64 * 128 + 128) + (128 * 64 + 64) + (64 * 64 + 64) + (64 * 256 + 256) + (256 * 10 + 10)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Answer]:
    """A run of moon with everything asked for, and what it answered."""
    folder = tmp_path_factory.mktemp("ran") / "run"
    return folder, moonfed("run", *SMALL, "--gamma", "--tensorboard", "--json", "--out", folder)


def entries(help: str) -> dict[str, str]:
    """Read the options of a help page: each flag with all that is said of it, however it was wrapped."""
    found: dict[str, str] = {}
    flag = ""
    for line in help.splitlines():
        text = " ".join(line.strip("│ ").split())
        if match := re.match(r"(--[a-z-]+)", text):
            flag = match[1]
        found[flag] = f"{found.get(flag, '')} {text}"
    return found


def test_moonfed_alone_is_its_help_and_no_error() -> None:
    alone = moonfed()
    assert alone == moonfed("--help") == moonfed("-h")
    assert alone.code == 0
    assert alone.err == ""
    assert "Start with: moonfed compare moon fedavg" in alone.out
    for command in ("run", "compare", "partition", "runs"):
        assert f"│ {command} " in alone.out
        page = moonfed(command, "--help")
        assert page.code == 0
        assert f"moonfed {command}" in page.out


def test_the_installed_command_answers() -> None:
    script = Path(sys.executable).with_name("moonfed")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stderr == ""
    assert re.fullmatch(r"moonfed \d+\.\d+\.\d+\n", done.stdout)


def test_every_setting_is_in_the_help_with_its_default() -> None:
    page = entries(moonfed("run", "--help").out)
    for section, settings in SECTIONS.items():
        for name, field in settings.model_fields.items():
            first, *others = flag_of(section, name).split("/")
            assert all(other in page[first] for other in others)
            if field.default is None:
                assert "default:" in page[first]
            elif not isinstance(field.default, bool):
                assert f"(default {field.default})" in page[first]
    for name, homes in all_settings().items():
        entry = page["--" + name.replace("_", "-")]
        assert all(f"{algorithm} {field.default}" in entry for algorithm, field in homes)
    assert "(default 0.01)" in page["--lr"]
    assert "(default 10)" in page["--parties"]
    assert "(default keep)" in page["--stragglers-keep"]
    assert "(default off)" in page["--gamma"]
    assert "weight of the contrastive term (default moon 1.0)" in page["--mu"]


def test_what_is_typed_beats_set_beats_the_file_beats_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("settings.toml").write_text("[data]\nbeta = 1\nparties = 5\nfloor = 20\n[run]\nseed = 4\n")
    layers = [[], ["--config", "settings.toml"], ["--set", "data.beta=2", "--set", "run.seed=5"]]
    typed = ["--beta", "3", "--seed", "6"]

    def beta_and_seed(*arguments: str) -> tuple[float, int]:
        value = moonfed("partition", "--json", *arguments).value
        return value["beta"], value["seed"]

    assert beta_and_seed(*layers[0]) == (0.5, 0)
    assert beta_and_seed(*layers[1]) == (1, 4)
    assert beta_and_seed(*layers[1], *layers[2]) == (2, 5)
    assert beta_and_seed(*layers[2], *layers[1]) == (2, 5)
    assert beta_and_seed(*layers[1], *layers[2], *typed) == (3, 6)
    assert len(moonfed("partition", "--json", *layers[1]).value["sizes"]) == 5


def test_a_run_records_the_settings_it_was_given_wherever_they_came_from(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(
        '[algorithm]\nname = "moon"\nmu = 2\ntemperature = 0.3\n[train]\nlr = 0.2\n[cohort]\nfraction = 0.5\n'
    )
    given = ["--config", file, "--set", "algorithm.mu=3", "--set", "train.lr=0.05", "--lr", "0.03", "--rounds", "1"]
    assert moonfed("run", *QUICK, *given, "--stragglers-drop", "--out", tmp_path / "run").code == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())["config"]
    assert config["algorithm"] == {"name": "moon", "server": None, "mu": 3, "temperature": 0.3, "negatives": 1}
    assert config["train"]["lr"] == 0.03
    assert config["cohort"]["fraction"] == 0.5
    assert config["cohort"]["stragglers_keep"] is False
    assert config["data"]["partition_seed"] == 0  # what was left open is recorded as it was decided
    assert len(rows(tmp_path / "run")[0]["cohort"]) == 2


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
    assert answer.value == {"folder": str(folder), "rounds": 2, "last": rows(folder)[-1], "failure": None}


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


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("compared") / "all"
    methods = ["fedavg", "moon:mu=5", "moon+fedavgm:server_momentum=0.9"]
    asked = ["compare", *methods, "--seeds", "0,2", *QUICK, "--rounds", "2", "--out", folder]
    assert moonfed(*asked).code == 0
    return folder, [str(part) for part in asked]


def test_compare_json_has_one_object_a_method_with_mean_std_and_seeds(compared: tuple[Path, list[str]]) -> None:
    folder, asked = compared
    found = moonfed(*asked, "--resume", "--json").value
    assert [summary["method"] for summary in found] == asked[1:4]
    for summary in found:
        slug = summary["method"].replace(":", "-")
        accuracies = [rows(folder / slug / f"seed-{seed}")[-1]["accuracy"] for seed in (0, 2)]
        assert summary["seeds"] == [0, 2]
        assert summary["accuracies"] == accuracies
        assert summary["mean"] == pytest.approx(sum(accuracies) / 2)
        assert summary["std"] == pytest.approx(statistics.stdev(accuracies))
        assert summary["failures"] == []
        assert summary["megabytes"] == pytest.approx(4 * 4 * (2 * PARAMETERS + 1) / 1e6)


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
        (line,) = [line for line in answer.out.splitlines() if line.split()[:1] == [method]]
        assert f"{50 * sum(accuracies):.1f} ± {100 * statistics.stdev(accuracies):.1f} %" in line


def test_a_trial_of_a_comparison_is_the_run_of_the_same_settings(
    compared: tuple[Path, list[str]], tmp_path: Path
) -> None:
    alone = ["run", *QUICK, "--rounds", "2", "--seed", "2", "--mu", "5", "--out", tmp_path / "run"]
    assert moonfed(*alone).code == 0
    one, other = (rows(path)[-1] for path in (tmp_path / "run", compared[0] / "moon-mu=5" / "seed-2"))
    assert one["cohort"] == other["cohort"]
    assert one["losses"] == pytest.approx(other["losses"], rel=1e-4)
    assert one["test_loss"] == pytest.approx(other["test_loss"], rel=1e-4)


@pytest.mark.parametrize("partition", ["dirichlet", "dirichlet-pure", "iid", "shards", "quantity"])
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
        "rounds": 2, "asked": 2, "accuracy": accuracy, "state": "finished",
    }  # fmt: skip
    assert (begun["state"], begun["rounds"]) == ("can be resumed", 1)
    assert failed["state"].startswith("failed: the loss of party 0 is not finite at step 2 in round 1")
    assert (failed["rounds"], failed["accuracy"]) == (0, None)
    assert damaged["state"].startswith("damaged: ")
    table = moonfed("runs", tmp_path).out
    assert all(word in table for word in ("finished", "can be resumed", "failed", "damaged", f"{accuracy:.1%}"))


def test_progress_is_plain_lines_on_stderr_where_there_is_no_terminal(tmp_path: Path) -> None:
    answer = moonfed("run", *QUICK, "--rounds", "3", "--out", tmp_path / "run")
    lines = answer.err.splitlines()
    assert len(lines) == 3
    for round, (line, row) in enumerate(zip(lines, rows(tmp_path / "run"), strict=True), start=1):
        assert line.startswith(f"round {round}/3  accuracy {row['accuracy']:.1%}  ")
        assert f"supervised {row['losses']['supervised']:.3f}" in line
        assert re.search(r"\d+ s, \d+ s left$", line)
    assert "\x1b" not in answer.err + answer.out
    assert re.fullmatch(r"\d+\.\d% on the test set after 3 rounds; .*\n", answer.out)


def on_terminal(kind: str) -> None:
    """Call the terminal this process writes to by a kind."""
    os.environ["TERM"] = kind
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "LINES"):
        os.environ.pop(name, None)


@pytest.fixture
def terminal() -> Iterator[tuple[int, str]]:
    """A pseudo-terminal of 80 columns: the end to read from, and the name of the end to write to."""
    reading, writing = pty.openpty()
    termios.tcsetwinsize(writing, (24, 80))
    yield reading, os.ttyname(writing)
    os.close(writing)
    os.close(reading)


@pytest.mark.parametrize(("kind", "live"), [("xterm-256color", True), ("dumb", False)])
def test_progress_is_live_on_a_terminal_that_can_show_it(
    kind: str, live: bool, terminal: tuple[int, str], tmp_path: Path
) -> None:
    reading, name = terminal
    asked = ["run", *QUICK, "--rounds", "12", "--out", tmp_path / "run"]
    attempt = Attempt(*asked, prepare=on_terminal, given=kind, screen=name)
    shown = ""
    while "on the test set after 12 rounds" not in shown:
        assert select.select([reading], [], [], 60)[0], shown
        shown += os.read(reading, 65536).decode()
    assert attempt.end().code == 0
    assert ("\x1b[?25l" in shown, "\x1b[2K" in shown) == (live, live)  # hides the cursor, writes over the line
    last = rows(tmp_path / "run")[-1]
    assert f"accuracy {last['accuracy']:.1%}  supervised {last['losses']['supervised']:.3f}  contrastive" in shown
    if live:
        assert len(set(re.findall(r"round (\d+)/12", shown))) > 2  # it moved
        assert re.search(r"round 12/12 .*\d:\d\d:\d\d.* gone, .*\d:\d\d:\d\d.* left", shown)
    else:
        assert re.findall(r"round (\d+)/12", shown) == [str(round) for round in range(1, 13)]


def test_a_reader_who_leaves_early_is_no_error_to_shout_about() -> None:
    script = Path(sys.executable).with_name("moonfed")
    process = subprocess.Popen(
        [script, "partition", "--parties", "100", "--floor", "1", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait() == 1


def test_waiting_threads_soon_sleep_unless_the_user_says_otherwise() -> None:
    code = "import os, moonfed.cli; print(os.environ.get('GOMP_SPINCOUNT'))"
    plain = {k: v for k, v in os.environ.items() if k not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    said = [
        subprocess.run([sys.executable, "-c", code], env=plain | more, capture_output=True, text=True).stdout
        for more in ({}, {"OMP_WAIT_POLICY": "active"}, {"GOMP_SPINCOUNT": "7"})
    ]
    assert [line.strip() for line in said] == ["10000", "None", "7"]


def test_an_interrupt_while_torch_is_loaded_is_one_line(place: Path) -> None:
    (place / "torch.py").write_text("raise KeyboardInterrupt\n")  # as if Ctrl-C had come just then
    command = [sys.executable, "-c", "from moonfed.cli import main; main()", "run"]
    ended = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(place)})
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", "moonfed: stopped\n")
