"""moonfed reproduce, from the command line to the files it leaves."""

import fcntl
import json
import re
from pathlib import Path
from typing import Any

import pytest
from commands import contents, moonfed
from safetensors import safe_open

from moonfed.papers.cost import rate_of
from moonfed.papers.recipes import RECIPES
from moonfed.report.listings import duration, step_time
from moonfed.training.accuracy import accuracy, final_accuracy

FILE_SETS = {"result.json", "table.md", "table.tex", "lines.csv", "differences.csv", "curves.csv"}

pytestmark = pytest.mark.timeout(1200)  # the first test runs every recipe, and the machine may be busy


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> tuple[Path, str]:
    """Every recipe at the scale of a smoke test, in one command; where the suite has two processes, one runs it."""
    base = tmp_path_factory.getbasetemp()
    top = (base if worker_id == "master" else base.parent) / "reproduce"
    top.mkdir(exist_ok=True)
    out, said = top / "out", top / "said.txt"
    with (top / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not said.exists():
            answer = moonfed("reproduce", "all", "--scale", "smoke", "--out", out)
            assert answer.code == 0, answer.err
            said.write_text(answer.out)
    return out, said.read_text()


def result(out: Path, id: str) -> dict[str, Any]:
    return json.loads((out / id / "result.json").read_text())


def test_every_recipe_runs_and_leaves_its_tables(everything):
    out, said = everything
    assert {path.name for path in out.iterdir()} == {*RECIPES, "trials", "report.html"}
    for id in RECIPES:
        assert {path.name for path in (out / id).iterdir()} >= FILE_SETS
        found = result(out, id)
        assert f"{id} [SMOKE" in said
        assert {line["state"] for line in found["lines"]} == {"run"}
        assert not any(item["verdict"].endswith("not run") for item in found["differences"])


def test_every_file_of_a_smoke_test_is_marked(everything):
    out, _ = everything
    for id in RECIPES:
        for name in FILE_SETS:
            text = (out / id / name).read_text()
            assert "smoke" in text.lower() or text.count("\n") == 1, (id, name)
        found = result(out, id)
        assert {line["dataset"] for line in found["lines"]} == {"digits"}
        assert all(item["verdict"].startswith("smoke: ") for item in found["differences"])


def test_a_smoke_test_puts_no_number_under_the_name_of_another_data_set(everything):
    out, said = everything
    for id in RECIPES:
        found = result(out, id)
        names = [found["title"], *(item["text"] for item in found["differences"])]
        names += [name for line in found["lines"] for name in (line["row"], line["column"])]
        assert not [name for name in names if "cifar" in name or "tinyimagenet" in name]
    assert not re.search(r"^ (cifar10|cifar100|tinyimagenet) ", said, re.MULTILINE)
    (table,) = (out / "table1").glob("table.md")
    head = next(line for line in table.read_text().splitlines() if line.startswith("| on |"))
    assert "| published on cifar10 | measured on digits (SMOKE) |" in head


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.2, "about 1 s"),
        (42, "about 40 s"),
        (200, "about 3 min"),
        (5 * 3600, "about 5 h"),
        (27 * 3600, "about 25 h"),
        (3.2 * 86400, "about 3 days"),
        (100 * 86400, "about 3 months"),
        (12960 * 86400, "about 35 years"),
        (81126 * 86400, "about 200 years"),
    ],
)
def test_an_estimate_is_as_exact_as_it_is_meant(seconds, said):
    assert duration(seconds) == said


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.0000391, "39 us"), (0.0434, "43 ms"), (0.9999, "1000 ms"), (5.13, "5.1 s"), (44, "44 s")]
)
def test_the_time_of_a_step_has_two_digits(seconds, said):
    assert step_time(seconds) == said


def test_an_estimate_is_of_warm_steps(monkeypatch):
    """The first step, which is slow, is not part of the estimate."""
    spent = iter([100.0, *[0.5] * 20])
    clock = [0.0]

    def tick() -> float:
        return clock[0]

    def step(*_) -> None:
        clock[0] += next(spent)

    monkeypatch.setattr("moonfed.papers.cost.time.perf_counter", tick)
    monkeypatch.setattr("moonfed.papers.cost.synchronise", step)
    rate = rate_of("digits", Path("nowhere"), "cpu")
    assert rate.seconds == 0.5 * 32 / 64
    assert clock[0] == 100 + 5 * 0.5


def test_one_page_shows_every_recipe_with_its_published_and_measured_values(everything):
    out, _ = everything
    page = (out / "report.html").read_text()
    assert "http" not in page
    assert page.count("SMOKE") > 34
    found = result(out, "table1")
    line = next(line for line in found["lines"] if (line["row"], line["column"]) == ("moon", "digits"))
    assert f"{100 * line['measured']['mean']:.1f} ± {100 * line['measured']['std']:.1f}" in page
    assert "69.1 ± 0.4" in page
    assert all(item["verdict"] in page for item in found["differences"])
    assert "t-SNE of the features of all data" in page


def test_figures_are_written_as_files_on_request(place):
    answer = moonfed("reproduce", "table8", "--scale", "smoke", "--seeds", "0,1", "--out", place, "--figures")
    assert answer.code == 0
    assert (place / "table8" / "report.html").exists()
    kinds = {path.suffix for path in (place / "table8").glob("table8-accuracy-*")}
    assert kinds == {".svg", ".pdf", ".png"}


def test_a_value_is_that_of_its_runs(everything):
    out, _ = everything
    line = result(out, "table1")["lines"][0]
    for trial in line["trials"]:
        log = (out / trial["folder"] / "rounds.jsonl").read_text().splitlines()
        rounds = [json.loads(row) for row in log][: line["settings"]["train"]["rounds"]]
        assert trial["value"] == accuracy(rounds)
        assert trial["final"] == final_accuracy(rounds) == rounds[-1]["accuracy"]


def test_methods_of_a_table_start_from_the_same_split_and_weights(everything):
    out, _ = everything
    lines = {line["row"]: line for line in result(out, "table1")["lines"] if line["column"] == "digits"}
    first = {
        row: [json.loads((out / t["folder"] / "rounds.jsonl").read_text().splitlines()[0])["accuracy"] for t in ts]
        for row, ts in ((row, lines[row]["trials"]) for row in ("moon", "fedavg"))
    }
    assert first["moon"] == first["fedavg"]  # MOON's first round is FedAvg's, to the bit


def test_the_tables_agree_where_they_print_the_same_runs(everything):
    out, _ = everything
    found = {id: {(x["row"], x["column"]): x["measured"] for x in result(out, id)["lines"]} for id in RECIPES}
    assert found["table1"]["moon", "digits"] == found["table12"]["moon k=1", "digits"]
    assert found["table1"]["moon", "digits"] == found["table9"]["moon mu=5", "digits"]
    assert found["table1"]["fedavg", "digits"] == found["table4"]["fedavg", "beta=0.5"]


def test_the_four_models_of_figure_2_leave_their_features(everything):
    out, _ = everything
    files = sorted((out / "fig2").glob("*.safetensors"))
    assert len(files) == 8  # four models, two seeds
    for path in files:
        with safe_open(str(path), framework="numpy") as file:
            assert file.get_tensor("features").shape[0] == file.get_tensor("labels").shape[0] == 382


def test_heat_maps_are_plotted(everything):
    out, _ = everything
    assert (out / "fig5" / "digits-split0.svg").read_text().lstrip().startswith("<?xml")


def test_the_same_command_again_runs_nothing_and_gives_the_same_result(everything):
    out, _ = everything
    before = contents(out / "trials")
    again = moonfed("reproduce", "table1", "table9", "--scale", "smoke", "--out", out, "--json")
    assert again.code == 0
    assert "round" not in again.err  # on a busy machine a line says that the page is plotted
    assert [found["id"] for found in again.value] == ["table1", "table9"]
    assert again.value[0] == result(out, "table1")
    assert contents(out / "trials") == before


def test_the_list_says_what_is_left_to_do(everything):
    out, _ = everything
    answer = moonfed("reproduce", "--list", "--scale", "smoke", "--out", out, "--json")
    assert [item["id"] for item in answer.value] == list(RECIPES)
    assert {item["trials_left"] for item in answer.value} == {0}
    new = moonfed("reproduce", "--list", "table1", "--scale", "smoke", "--out", out, "--seeds", "0-2", "--json")
    (item,) = new.value
    assert (item["trials"], item["trials_left"]) == (18, 6)  # six methods on one data set
    assert item["seconds"] > 0
    assert "runs made here" in item["rates"]["digits"]["source"]


def test_the_list_of_the_published_scale_needs_no_data(place, monkeypatch):
    monkeypatch.setenv("MOONFED_DATA", str(place / "empty"))
    answer = moonfed("reproduce", "--list", "table8", "xu-table2", "--json")
    assert answer.code == 0
    assert [item["here"] for item in answer.value] == [{"cifar10": False}] * 2
    assert [item["trials"] for item in answer.value] == [15, 12]
    words = moonfed("reproduce", "--list", "table8")
    assert "-cifar10" in words.out
    assert re.search(
        r"cifar10: about [\d.]+ (us|ms) per party-step, from warm steps timed now, without a stack", words.out
    )
