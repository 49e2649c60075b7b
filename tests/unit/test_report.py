"""moonfed report: the page says what the rows say, of whatever runs it is given."""

import csv
import json
import re
import runpy
import shutil
import statistics
from html.parser import HTMLParser
from pathlib import Path

import pytest
from commands import QUICK, moonfed, rows

from moonfed.experiments.statistics import t_quantile
from moonfed.storage.run_record import read_runs

SEEDS = (0, 1, 2)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods over three seeds, 12 rounds each."""
    folder = tmp_path_factory.mktemp("compared") / "runs"
    asked = ["compare", "fedavg", "moon:mu=5", *QUICK, "--rounds", "12", "--seeds", "0,1,2", "--out", folder]
    assert moonfed(*asked).code == 0
    return folder


class Cells(HTMLParser):
    """The tables of a page: caption to rows of cells."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.open, self.text = "", ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        if tag == "tr":
            self.tables[self.caption].append([])
        if tag in ("caption", "th", "td"):
            self.text = ""

    def handle_data(self, data):
        self.text += data

    def handle_endtag(self, tag):
        if tag == "caption":
            self.caption = self.text
            self.tables[self.caption] = []
        if tag in ("th", "td"):
            self.tables[self.caption][-1].append(self.text)


def page_of(*folders: Path, more: tuple[str | Path, ...] = ("--tsne", "0")) -> str:
    answer = moonfed("report", *folders, "-o", "page.html", *more)
    assert answer.code == 0, answer.err
    return Path("page.html").read_text()


def accuracies(folder: Path, method: str) -> list[list[float]]:
    return [[row["accuracy"] for row in rows(folder / method / f"seed-{seed}")] for seed in SEEDS]


def test_the_numbers_of_the_page_are_those_of_the_rows(compared, place):
    page = page_of(compared, more=("--tsne", "0", "--target", "0.3"))
    tables = Cells(page).tables
    by_method = {name: accuracies(compared, name) for name in ("fedavg", "moon-mu=5")}
    means = {name: [statistics.fmean(seed[9:12]) for seed in seeds] for name, seeds in by_method.items()}
    lasts = {name: [seed[11] for seed in seeds] for name, seeds in by_method.items()}
    gaps = [100 * (a - b) for a, b in zip(means["moon-mu=5"], means["fedavg"], strict=True)]
    half = t_quantile(0.975, 2) * statistics.stdev(gaps) / 3**0.5
    middle = statistics.fmean(gaps)

    def shown(values: list[float]) -> str:
        return f"{100 * statistics.fmean(values):.1f} ± {100 * statistics.stdev(values):.1f}"

    def ends(values: list[float]) -> str:
        mean, width = statistics.fmean(values), t_quantile(0.975, 2) * statistics.stdev(values) / 3**0.5
        return f"{100 * (mean - width):.1f} to {100 * (mean + width):.1f}"

    head, *body = tables["Test accuracy by method"]
    assert head[2:5] == ["accuracy (mean of the last 3 rounds), %", "95 % interval", "final accuracy, %"]
    assert body == [
        ["fedavg", "3 of 3", shown(means["fedavg"]), ends(means["fedavg"]), shown(lasts["fedavg"]), "", ""],
        [
            "moon",
            "3 of 3",
            shown(means["moon-mu=5"]),
            ends(means["moon-mu=5"]),
            shown(lasts["moon-mu=5"]),
            f"{middle:+.1f} ({middle - half:+.1f} to {middle + half:+.1f})",
            "better" if middle > half else "worse" if middle < -half else "statistically indistinguishable",
        ],
    ]
    for line, name in zip(tables["Rounds to the final accuracy of fedavg"][1:], by_method, strict=True):
        first = [
            next((n for n, a in enumerate(seed, start=1) if a >= target), None)
            for seed, target in zip(by_method[name], lasts["fedavg"], strict=True)
        ]
        reached = [n for n in first if n is not None]
        told = f"{statistics.fmean(reached):.1f} ({', '.join(map(str, first))})" if reached else ""
        assert line[1] == (told if len(reached) == 3 else f"reached by {len(reached)} of 3 seeds")
        log = rows(compared / name / "seed-0")[0]
        spent = f"{statistics.fmean(reached) * (log['bytes_up'] + log['bytes_down']) / 1e6:.1f}" if reached else ""
        assert line[4] == (spent if len(reached) == 3 else "")
    cost = tables["Cost of one trial"][1]
    logs = [row for seed in SEEDS for row in rows(compared / "fedavg" / f"seed-{seed}")]
    assert cost[2] == f"{statistics.fmean(row['bytes_up'] for row in logs) / 1e6:.2f}"
    assert cost[4] == f"{12 * statistics.fmean(row['bytes_up'] + row['bytes_down'] for row in logs) / 1e6:.1f}"
    assert cost[5] == f"{statistics.fmean(row['training_seconds'] for row in logs):.2f}"


def test_json_gives_the_numbers_of_the_page(compared, place):
    answer = moonfed("report", compared, "--json", "--tsne", "0", "--target", "0.3")
    (setting,) = answer.value["settings"]
    fedavg, moon = setting["methods"]
    for method, name in ((fedavg, "fedavg"), (moon, "moon-mu=5")):
        seeds = accuracies(compared, name)
        assert [v["value"] for v in method["accuracy"]["by_seed"]] == pytest.approx(
            [statistics.fmean(seed[-3:]) for seed in seeds]
        )
        assert [v["value"] for v in method["final_accuracy"]["by_seed"]] == [seed[-1] for seed in seeds]
        first = [next((n for n, a in enumerate(seed, start=1) if a >= 0.3), None) for seed in seeds]
        assert [v["value"] for v in method["rounds_to"]["0.3"]] == first
    assert moon["difference"]["mean"] == pytest.approx(moon["accuracy"]["mean"] - fedavg["accuracy"]["mean"])
    assert moon["difference"]["n"] == 3
    assert fedavg["difference"] is None
    assert answer.value["page"] == "report.html"
    assert Path("report.html").exists()


def test_the_page_needs_nothing_from_elsewhere(compared, place):
    page = page_of(compared, more=("--tsne", "40"))
    assert not re.search(r"https?://|<script|@import|src=|<link(?! rel=\"icon\" href=\"data:,\")", page)
    assert '<html lang="en">' in page
    drawings = re.findall(r"<svg[^>]*>", page)
    assert len(drawings) == 9  # differences, three curves, three splits, two models
    assert all('role="img"' in drawing and 'aria-label="' in drawing for drawing in drawings)
    names = re.findall(r'\sid="([^"]+)"', page)
    assert len(set(names)) == len(names)
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', page))
    assert used <= set(names)
    assert "Features of the final models" in page


def test_the_same_runs_give_the_same_page(compared, place):
    assert page_of(compared) == page_of(compared)


def test_figures_and_tables_are_written_as_files(compared, place):
    page_of(compared, more=("--tsne", "0", "--figures", "out/figures"))
    written = {path.name for path in Path("out/figures").iterdir()}
    for stem in ("1-digits-test-accuracy", "1-digits-test-loss", "1-digits-differences", "1-digits-split-0"):
        assert {f"{stem}.{kind}" for kind in ("svg", "pdf", "png")} <= written
    for stem in ("1-digits-accuracy", "1-digits-rounds", "1-digits-cost", "methods"):
        assert {f"{stem}.{kind}" for kind in ("md", "tex", "csv")} <= written
    with Path("out/figures/1-digits-accuracy.csv").open(newline="") as file:
        assert list(csv.reader(file)) == Cells(Path("page.html").read_text()).tables["Test accuracy by method"]
    assert Path("out/figures/1-digits-test-accuracy.pdf").read_bytes().startswith(b"%PDF")
    assert r"$\pm$" in Path("out/figures/1-digits-accuracy.tex").read_text()


def test_one_seed_has_no_spread(compared, place):
    page = page_of(compared / "fedavg" / "seed-1")
    assert "one seed: no spread can be given" in page
    assert "±" not in Cells(page).tables["Test accuracy by method"][1][2]


def test_an_unfinished_and_a_failed_trial_are_shown_and_not_averaged(compared, place):
    shutil.copytree(compared, "runs")
    log = Path("runs/moon-mu=5/seed-2/rounds.jsonl")
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:5]))
    for folder in ("runs/moon-mu=5/seed-2", "runs/fedavg/seed-0"):
        shutil.rmtree(f"{folder}/checkpoint")
    Path("runs/fedavg/seed-0/failure.json").write_text(json.dumps({"failure": "the loss <i>is</i> not finite"}))
    page = page_of(Path("runs"))
    assert "moon: seed 2 unfinished, 5 of 12 rounds" in page
    assert "fedavg: seed 0 failed after round 12: the loss &lt;i&gt;is&lt;/i&gt; not finite" in page
    _, fedavg, moon = Cells(page).tables["Test accuracy by method"]
    assert (fedavg[1], moon[1]) == ("2 of 3", "2 of 3")
    mean = statistics.fmean(statistics.fmean(seed[-3:]) for seed in accuracies(compared, "fedavg")[1:])
    assert fedavg[2].startswith(f"{100 * mean:.1f} ± ")
    (setting,) = moonfed("report", "runs", "--json", "--tsne", "0").value["settings"]
    assert setting["methods"][1]["difference"]["n"] == 1  # seed 1 alone is whole in both
    assert "4 of them finished" in page


def test_a_method_without_a_finished_trial_is_marked(compared, place):
    shutil.copytree(compared / "fedavg" / "seed-0", "run")
    log = Path("run/rounds.jsonl")
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:4]))
    shutil.rmtree("run/checkpoint")
    page = page_of(Path("run"))
    assert "numbers up to round 4 of 12" in page
    head, line = Cells(page).tables["Test accuracy by method"]
    assert head[2] == "accuracy (last round), %"
    assert line[1] == "1 of 1, round 4 of 12"


def test_other_settings_are_other_chapters_and_variants_of_one_method_get_their_own_names(place):
    few = [*QUICK, "--rounds", "1", "--seeds", "0"]
    assert moonfed("compare", "moon:mu=1", "moon:mu=5", "fedavg", *few, "--out", "a").code == 0
    assert moonfed("compare", "fedavg", *few, "--beta", "5", "--out", "b").code == 0
    one, other = moonfed("report", "a", "b", "--json", "--tsne", "0").value["settings"]
    assert [m["method"] for m in one["methods"]] == ["fedavg", "moon:mu=1", "moon:mu=5"]
    assert [m["method"] for m in other["methods"]] == ["fedavg"]
    assert "beta 0.5" in one["title"]
    assert "beta 5" in other["title"]


def test_names_from_files_are_escaped(compared, place):
    shutil.copytree(compared / "fedavg" / "seed-0", "<b>bold & <script>")
    page = page_of(Path("."), more=("--tsne", "0", "--title", "<u>mine</u>"))
    assert "<b>" not in page
    assert "<script" not in page
    assert "&lt;b&gt;bold &amp; &lt;script&gt;" in page
    assert "<h1>&lt;u&gt;mine&lt;/u&gt;</h1>" in page


def test_a_trial_that_two_folders_hold_counts_once(compared, place):
    shutil.copytree(compared / "fedavg" / "seed-0", "twin")
    page = page_of(Path("twin"), compared)
    assert "seed 0 is also in" in page
    assert (
        Cells(page).tables["Test accuracy by method"][1:]
        == Cells(page_of(compared)).tables["Test accuracy by method"][1:]
    )
    assert "6 trials of 2 methods" in page


def test_the_example_of_the_documentation_makes_its_page(compared, place):
    text = (Path(__file__).parents[2] / "docs" / "report.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    shutil.copytree(compared, "runs/demo")
    Path("example.py").write_text(example)
    runpy.run_path("example.py")
    (_, first, _) = Cells(Path("page.html").read_text()).tables["Accuracy by seed"]
    assert first == ["fedavg", *(f"{statistics.fmean(seed[-3:]):.1%}" for seed in accuracies(compared, "fedavg"))]
    assert Path("figures/demo-test-accuracy.pdf").exists()


def test_a_folder_is_read_once_and_left_as_it_was(compared, place):
    assert len(read_runs([compared, compared / "fedavg", compared / "fedavg" / "seed-0"])) == 6


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere"], "nowhere is not there"),
        (["empty"], "empty holds no run"),
        (["file.txt"], "file.txt is a file"),
        (["begun"], "has finished a round yet"),
        (["cut"], "line 2 is no record of round 2"),
        (["config"], "config/config.json"),
        (["run", "-o", "page.txt"], "needs a file that ends in .html"),
        (["run", "-o", "none/page.html"], "cannot write none/page.html"),
        (["run", "--figures", "file.txt"], "--figures needs a folder"),
        (["run", "--target", "70"], "between 0 and 1"),
        (["run", "--tsne", "3"], "10 to 10000"),
        ([], "RUN_FOLDERS"),
    ],
)
def test_what_cannot_be_reported_is_rejected_in_one_line(arguments, says, compared, place):
    for name in ("run", "begun", "cut", "config"):
        shutil.copytree(compared / "fedavg" / "seed-0", name)
    for name in ("begun", "cut"):
        shutil.rmtree(f"{name}/checkpoint")
    Path("begun/rounds.jsonl").write_text("")
    Path("cut/rounds.jsonl").write_text(Path("run/rounds.jsonl").read_text().replace('"round": 2,', '"round": 20,'))
    Path("config/config.json").write_text("{}")
    Path("empty").mkdir()
    Path("file.txt").write_text("")
    answer = moonfed("report", *arguments)
    assert answer.code == 2
    assert says in answer.err
    assert len(answer.err.strip().splitlines()) == 1
    assert not Path("report.html").exists()


def test_a_missing_model_or_data_set_is_reported(compared, place):
    shutil.copytree(compared / "fedavg" / "seed-0", "run")
    Path("run/final.safetensors").unlink()
    shutil.rmtree("run/checkpoint")
    page = page_of(Path("run"), more=("--tsne", "40"))
    assert "fedavg is not plotted: run keeps no model of its last round." in page
    there = json.loads(Path("run/config.json").read_text())
    Path("run/config.json").write_text(json.dumps(there | {"data": "0" * 64}))
    page = page_of(Path("run"), more=("--tsne", "40"))
    assert "Not plotted: digits on this machine is not the data set that run was run on." in page
