"""moonfed reproduce, from the command line to the files it leaves."""

import fcntl
import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from commands import Attempt, bits, contents, moonfed, refuse, refused
from safetensors import safe_open

from moonfed.papers.cost import rate_of
from moonfed.papers.recipe_result import result_of
from moonfed.papers.recipe_trials import ReproductionOptions, run_recipes
from moonfed.papers.recipes import RECIPES
from moonfed.report.listings import duration, step_time
from moonfed.training.accuracy import accuracy, final_accuracy
from moonfed.training.callbacks import Callback, FunctionCallback

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


def until(rounds: int) -> list[Callback]:
    """Stop after a round, as Ctrl-C does."""
    return [FunctionCallback(lambda record: record["round"] >= rounds)]


def test_stopped_and_resumed_is_never_stopped(tmp_path):
    recipes = [RECIPES[id].only("cifar10") for id in ("table12", "table8")]
    whole, halved = (ReproductionOptions(tmp_path / name, "smoke", (0,)) for name in ("whole", "halved"))
    assert run_recipes(recipes, whole, until(9))
    assert not run_recipes(recipes, halved, until(1))
    assert {line["state"] for line in result_of(recipes[0], halved)["lines"]} == {"not run"}
    assert {item["verdict"] for item in result_of(recipes[0], halved)["differences"]} == {"smoke: not run"}
    assert run_recipes(recipes, halved, until(9))
    assert bits(halved.out) == bits(whole.out)


def test_several_splits_are_trials_of_their_own(place):
    answer = moonfed(
        "reproduce", "xu-table2", "--scale", "smoke", "--seeds", "0", "--splits", "0,1", "--out", place, "--json"
    )
    (found,) = answer.value
    assert [(t["split"], t["seed"]) for t in found["lines"][0]["trials"]] == [(0, 0), (1, 0)]
    assert found["differences"][0]["measured"]["n"] == 2
    assert (place / "xu-table2-splits-0-1-seeds-0" / "table.md").exists()


def test_ctrl_c_ends_in_one_line_and_the_same_command_continues(place):
    words = ("reproduce", "table8", "--scale", "smoke", "--seeds", "0", "--out", place)
    attempt = Attempt(*words)
    attempt.await_word("round 1/2")
    attempt.send(signal.SIGINT)
    answer = attempt.end()
    assert answer.code in (0, 1), answer.err  # 0 if the last round was over before the signal came
    assert "Traceback" not in answer.err
    assert moonfed(*words).code == 0


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["tabel1"], 'no recipe "tabel1"; did you mean table1? known: '),
        ([], "reproduce needs an id, for example table1, or all; moonfed reproduce --list shows every id"),
        (["table1", "--dataset", "cifar"], 'no data set "cifar" in the recipes; did you mean cifar10? known: '),
        (["table8", "--dataset", "cifar100"], "table8 does not use cifar100; it uses cifar10"),
        (["table1", "--scale", "big"], 'no scale "big"; '),
        (["table1", "--scale", "smoke", "--splits", "x"], "--splits needs whole numbers"),
        (["table1", "--scale", "smoke", "--seeds", ""], "--seeds needs whole numbers"),
        (["table1", "--scale", "smoke", "--device", "gpu"], "run.device needs another form"),
        (["--list", "--device", "gpu"], "run.device needs another form"),
    ],
)
def test_invalid_input_is_rejected_in_one_line(place, words, line):
    assert line in refuse(place, "reproduce", *words)


def test_data_that_is_not_here_is_named_with_the_command_that_gets_it(place, monkeypatch):
    monkeypatch.setenv("MOONFED_DATA", str(place / "empty"))
    said = refuse(place, "reproduce", "table1", "--dataset", "cifar10")
    assert "table1 needs cifar10, which is not on this machine; get it with: moonfed data get cifar10" in said


def test_results_of_another_scale_are_not_overwritten(place):
    (place / "table8").mkdir()
    (place / "table8" / "result.json").write_text('{"scale": "full"}')
    assert "holds results of scale full, now smoke" in refuse(
        place, "reproduce", "table8", "--scale", "smoke", "--out", place
    )


def test_a_folder_that_cannot_be_written_is_reported_in_one_line(place):
    (place / "file").write_text("")
    said = refused(moonfed("reproduce", "table6", "--scale", "smoke", "--out", place / "file"))
    assert "cannot write" in said


QUICK = ["reproduce", "xu-table2", "--scale", "smoke", "--seeds", "0"]


def test_what_another_command_made_is_never_written_over(place):
    assert moonfed(*QUICK, "--out", place).code == 0
    first = (place / "xu-table2-seeds-0" / "result.json").read_bytes()
    assert moonfed("reproduce", "xu-table2", "--scale", "smoke", "--seeds", "1", "--out", place).code == 0
    assert moonfed(*QUICK, "--dataset", "cifar10", "--out", place).code == 0
    assert (place / "xu-table2-seeds-0" / "result.json").read_bytes() == first
    assert (place / "xu-table2-seeds-1" / "result.json").exists()
    assert (place / "xu-table2-cifar10-seeds-0" / "result.json").exists()


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        ("rounds.jsonl", b"", "is damaged: it holds 0 of"),
        ("config.json", b"{}", "is damaged"),
        ("config.json", b"{", ""),
    ],
)
def test_a_damaged_trial_is_named_in_one_line(place, name, content, word):
    assert moonfed(*QUICK, "--out", place).code == 0
    trial = next((place / "trials").iterdir())
    (trial / name).write_bytes(content)
    done = moonfed(*QUICK, "--out", place)
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert word in done.err
    assert name in done.err


def test_a_damaged_result_is_made_again(place):
    assert moonfed(*QUICK, "--out", place).code == 0
    path = place / "xu-table2-seeds-0" / "result.json"
    good = path.read_bytes()
    path.write_bytes(b"{")
    assert moonfed(*QUICK, "--out", place).code == 0
    assert path.read_bytes() == good
