"""What the page shows of final models, groups and splits, against the files that the runs wrote."""

import json
import re
import shutil
import statistics
from pathlib import Path
from typing import Any

import pytest
from commands import QUICK, moonfed
from test_report import Cells
from user_rows import people

from moonfed.data.catalog.image_sets import CLASS_NAMES, IMAGE_SETS
from moonfed.report.blocks import Table
from moonfed.report.final_models import class_names
from moonfed.report.group_names import distinguishing, name_groups
from moonfed.report.grouping import settings_of
from moonfed.report.methods import shared_settings
from moonfed.report.run_report import report_sections
from moonfed.storage.run_record import RunRecord, read_run, read_runs
from moonfed.training.config import make_config

METRICS = ("log_loss", "brier", "ece", "auc", "sensitivity", "specificity")


@pytest.fixture(scope="module")
def natural(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three methods on a table with named parties and classes, over three seeds."""
    folder = tmp_path_factory.mktemp("natural")
    words = ["--data", people(folder / "people.csv"), "--label", "kind", "--party", "site", "--batch", "4"]
    words += ["--rounds", "2", "--epochs", "1", "--seeds", "0,1,2", "--out", folder / "runs"]
    assert moonfed("compare", "fedavg", "moon", "solo", *words).code == 0
    return folder / "runs"


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("simulated") / "runs"
    words = [*QUICK, "--rounds", "1", "--seeds", "0,1", "--out", folder]
    assert moonfed("compare", "fedavg", "solo", *words).code == 0
    return folder


def page_of(*folders: Path) -> str:
    answer = moonfed("report", *folders, "-o", "page.html", "--tsne", "20")
    assert answer.code == 0, answer.err
    return Path("page.html").read_text()


def evaluations(folder: Path, method: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((folder / method).glob("seed-*/evaluation.json"))]


def shown(values: list[float | None], digits: int = 3, factor: float = 1.0) -> str:
    known = [value for value in values if value is not None]
    return f"{factor * statistics.fmean(known):.{digits}f}" if known else ""


def test_accuracy_by_class_and_confusion_are_means_over_the_seeds_with_the_names_of_the_classes(natural, place):
    tables = Cells(page_of(natural)).tables
    head, *rows = tables["Accuracy by class, %"]
    assert head == ["class", "fedavg", "moon", "solo"]
    assert [row[0] for row in rows] == ["x", "y"]
    for k, row in enumerate(rows):
        for cell, method in zip(row[1:], head[1:], strict=True):
            confusions = [found["confusion"] for found in evaluations(natural, method)]
            assert cell == shown([c[k][k] / sum(c[k]) for c in confusions], 1, 100)
    for method in head[1:]:
        top, *matrix = tables[f"Confusion by {method}, %"]
        assert top == ["true class", "x", "y"]
        for k, row in enumerate(matrix):
            shares = [
                [c[k][j] / sum(c[k]) for c in (e["confusion"] for e in evaluations(natural, method))] for j in (0, 1)
            ]
            assert row == ["xy"[k], *("·" if not sum(s) else shown(list(s), 1, 100) for s in shares)]


def test_figures_of_probabilities_are_shown_by_method_and_by_party(natural, place):
    tables = Cells(page_of(natural)).tables
    head, *rows = tables["Probabilities of the final models"]
    assert head == ["method", "log loss", "Brier score", "ECE", "AUC", "sensitivity", "specificity"]
    for row in rows:
        found = evaluations(natural, row[0])
        assert row[1:] == [shown([one[key] for one in found]) for key in METRICS]
    head, *rows = tables["Final models by party"]
    assert head == ["method", "accuracy, %", "log loss", "Brier score", "ECE", "AUC", "sensitivity", "specificity"]
    parties = [row[0] for row in rows if len(row) == 1]
    assert [party.split(", ")[0] for party in parties] == ["a", "b", "c"]
    for place_, party in enumerate("abc"):
        for row in rows[4 * place_ + 1 : 4 * place_ + 4]:
            found = [one["by_party"][party] for one in evaluations(natural, row[0])]
            assert row[1] == shown([one["accuracy"] for one in found], 1, 100)
            assert row[2:] == [shown([one[key] for one in found]) for key in METRICS]


def in_old_form(evaluation: dict[str, Any]) -> dict[str, Any]:
    """Describe parties as earlier commits did: in a list, and once more by name with another meaning of rows."""
    parties, by_party = [], {}
    for name, now in evaluation["by_party"].items():
        both = {"accuracy": now["accuracy"]}
        parties.append({"party": name, "rows": now["training_rows"], "test_rows": now["test_rows"]} | both)
        by_party[name] = {"rows": now["test_rows"]} | both | {key: now[key] for key in METRICS}
    return evaluation | {"parties": parties, "by_party": by_party}


def test_an_evaluation_in_the_form_of_earlier_commits_is_read_as_what_it_says(natural, place):
    shutil.copytree(natural, "old")
    before = {path: read_run(path.parent).evaluation for path in Path("old").rglob("evaluation.json")}
    new = Cells(page_of(Path("old"))).tables
    for path in before:
        path.write_text(json.dumps(in_old_form(json.loads(path.read_text()))))
    assert {path: read_run(path.parent).evaluation for path in before} == before
    assert Cells(page_of(Path("old"))).tables == new


def test_a_run_without_figures_of_probabilities_shows_none_and_keeps_its_parties(natural, place):
    shutil.copytree(natural, "old")
    for path in Path("old").rglob("evaluation.json"):
        found = in_old_form(json.loads(path.read_text()))
        path.write_text(json.dumps({k: v for k, v in found.items() if k not in (*METRICS, "by_party", "positive")}))
    page = page_of(Path("old"))
    assert "log loss" not in page
    assert "Brier" not in page
    head, *rows = Cells(page).tables["Final accuracy by party"]
    assert head == ["party", "rows", "test rows", "fedavg", "moon", "solo"]
    for row in rows:
        for cell, method in zip(row[3:], head[3:], strict=True):
            found = [one["by_party"][row[0]]["accuracy"] for one in evaluations(natural, method)]
            assert cell == f"{statistics.fmean(found):.1%}"


@pytest.mark.parametrize(
    "parties",
    [{"by_party": [1]}, {"by_party": {"a": 3}}, {"by_party": {"a": {"rows": 3}}}, {"parties": 3}, {"parties": [3]}],
)
def test_parties_of_a_damaged_evaluation_are_left_out(parties, natural, place):
    shutil.copytree(natural, "damaged")
    for path in Path("damaged").rglob("evaluation.json"):
        found = json.loads(path.read_text())
        del found["by_party"]
        path.write_text(json.dumps(found | parties))
    assert "Final models by party" not in Cells(page_of(Path("damaged"))).tables


def test_parties_of_simulated_splits_are_ranked_within_each_split(simulated, place):
    head, *rows = Cells(page_of(simulated)).tables["Final accuracy by party"]
    assert head == ["method", "worst party, %", "median party, %", "best party, %"]
    assert [row[0] for row in rows] == ["fedavg"], "solo has no global model"
    at = [found["accuracy_at_party"] for found in evaluations(simulated, "fedavg")]
    assert rows[0][1:] == [shown([f(values) for values in at], 1, 100) for f in (min, statistics.median, max)]


def test_a_damaged_evaluation_leaves_out_what_depends_on_it(simulated, place):
    shutil.copytree(simulated, "runs")
    for path, text in zip(
        sorted(Path("runs").rglob("evaluation.json")),
        ['{"confusion": "x"}', '{"confusion": [[1]]}', "{", "{}"],
        strict=True,
    ):
        path.write_text(text)
    assert "Test accuracy by method" in page_of(Path("runs"))


def test_a_natural_split_is_drawn_once_and_a_simulated_one_for_each_seed(natural, simulated, place):
    assert page_of(natural).count("Rows of each class at each party. Natural split:") == 1
    assert page_of(simulated).count("Rows of each class at each party. Split seed ") == 2
    assert page_of(natural, simulated).count("Rows of each class at each party. ") == 3


def test_figures_name_classes(natural, place):
    page = page_of(natural)
    panels = re.findall(r"<svg[^>]*t-SNE.*?</svg>", page, flags=re.DOTALL)
    assert len(panels) == 3
    assert all({">x<", ">y<"} <= set(re.findall(r">\w<", panel)) for panel in panels)


def test_machines_come_last_and_the_summary_first(natural, simulated, place):
    for page in (page_of(natural), page_of(natural, simulated)):
        headings = re.findall(r"<h2[^>]*>(.*?)</h2>", page)
        assert (headings[0], headings[-1]) == ("Summary", "What was run")
        captions = list(Cells(page).tables)
        assert captions[0] == "Test accuracy by method"
        assert captions[-2:] == ["Methods", "Machines"]


def test_the_summary_of_several_groups_has_the_numbers_of_their_tables(natural, simulated):
    settings = settings_of(read_runs([natural, simulated]))
    summary = report_sections(settings, tsne=0)[0].blocks[1]
    assert isinstance(summary, Table)
    assert [(row[0], row[1]) for row in summary.rows] == [(s.title, m.name) for s in settings for m in s.methods]
    for row in summary.rows:
        (setting,) = [setting for setting in settings if setting.title == row[0]]
        (method,) = [method for method in setting.as_json()["methods"] if method["method"] == row[1]]
        over = method["accuracy"]
        assert row[2] == f"{100 * over['mean']:.1f} ± {100 * over['std']:.1f}"
        assert row[3] == (over["remark"] or f"{100 * over['low']:.1f} to {100 * over['high']:.1f}")
        assert row[4] == str(over["n"])
        assert (row[5] == "reference") == (method["method"] == "fedavg")
        assert row[6] == ("" if method["difference"] is None else method["difference"]["verdict"])


def group(**changed: Any) -> dict[str, Any]:
    sections = {
        "dataset": "data",
        "parties": "data",
        "partition": "data",
        "beta": "data",
        "lr": "train",
        "epochs": "train",
    }
    values: dict[str, dict[str, Any]] = {}
    for name, value in changed.items():
        values.setdefault(sections[name], {})[name] = value
    return shared_settings(RunRecord(Path(), make_config(values), [], None, {}))


def test_several_groups_are_named_by_what_differs_and_one_in_full():
    assert name_groups([group(beta=0.1)])[0].startswith("digits: 10 parties, dirichlet split (beta 0.1), 20 rounds of ")
    assert name_groups([group(lr=0.1), group(lr=0.2)]) == ["lr 0.1", "lr 0.2"]
    grid = [group(parties=n, beta=b) for n in (5, 10) for b in (0.1, 5.0)]
    assert name_groups(grid)[:2] == ["beta 0.1, 5 parties", "beta 5, 5 parties"]
    mixed = [group(partition="iid"), group(beta=0.1), group(beta=5.0)]
    assert name_groups(mixed) == ["iid split", "dirichlet split, beta 0.1", "dirichlet split, beta 5"]
    odd = [group(partition="iid", beta=0.1), group(partition="iid", beta=5.0)]
    assert len(set(name_groups(odd))) == 2, "names are different even where the difference has no effect"


def test_a_setting_that_follows_from_another_is_not_named():
    both = [group() | {"dataset": "hearts", "path": "a/hearts.csv", "label": "x"}, group(lr=0.1)]
    assert distinguishing(both) == ["dataset"]
    assert name_groups(both) == ["hearts", "digits"]


def test_published_class_names_are_as_many_as_the_classes(natural):
    assert all(len(names) == IMAGE_SETS[dataset].classes for dataset, names in CLASS_NAMES.items())
    record = read_run(natural / "fedavg" / "seed-0")
    assert class_names(record, 2) == ["x", "y"]
    assert class_names(record, 3) == ["0", "1", "2"], "names that do not fit are not used"
