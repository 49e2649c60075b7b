"""The comparison of methods over seeds: one set of figures for the terminal, the page and JSON."""

import re
import statistics
from pathlib import Path
from typing import Any

import pytest
from commands import QUICK, moonfed, rows

from moonfed import compare
from moonfed.core.wording import signed
from moonfed.report.grouping import comparison
from moonfed.report.methods import Method, Setting
from moonfed.report.sections import accuracy_table
from moonfed.storage.run_record import RunRecord
from moonfed.training.config import make_config


def record(method: str, seed: int, *accuracies: float) -> RunRecord:
    config = make_config({"algorithm": {"name": method}, "run": {"seed": seed}, "train": {"rounds": len(accuracies)}})
    rows: list[Any] = [
        {"round": n, "accuracy": a, "losses": {}, "seconds": 1.0, "bytes_up": 1, "bytes_down": 1}
        for n, a in enumerate(accuracies, start=1)
    ]
    return RunRecord(Path(method) / f"seed-{seed}", config, rows, None, {})


def setting(baseline: str | None = None, **methods: list[float]) -> Setting:
    named = [(name, record("fedavg", seed, a)) for name, values in methods.items() for seed, a in enumerate(values)]
    (found,) = comparison(named, baseline)
    return found


def test_a_difference_is_the_method_minus_the_baseline_over_the_seeds_that_both_have():
    one = Method("moon", [record("moon", seed, a) for seed, a in ((0, 0.7), (1, 0.8), (2, 0.9))])
    other = Method("fedavg", [record("fedavg", seed, a) for seed, a in ((2, 0.5), (1, 0.6))])
    found = Setting("", [one, other]).difference(one)
    assert found is not None
    assert found.mean == pytest.approx(((0.8 - 0.6) + (0.9 - 0.5)) / 2)
    assert found.n == 2
    assert one.as_json()["accuracy"]["std"] == pytest.approx(0.1)


def test_the_baseline_is_the_named_method_else_fedavg_else_the_first():
    assert setting(moon=[0.5], fedavg=[0.4]).baseline.name == "fedavg"
    assert setting(moon=[0.5], fedprox=[0.4]).baseline.name == "moon"
    assert setting("fedprox", moon=[0.5], fedavg=[0.4], fedprox=[0.3]).baseline.name == "fedprox"


def test_the_verdict_is_better_worse_or_statistically_indistinguishable():
    table = accuracy_table(
        setting(fedavg=[0.50, 0.52, 0.51], a=[0.60, 0.62, 0.611], b=[0.40, 0.42, 0.411], c=[0.50, 0.53, 0.49]), "t"
    )
    assert [row[-1] for row in table.rows] == ["", "better", "worse", "statistically indistinguishable"]
    assert table.rows[1][-2].startswith("+10.0 (+9.9 to +10.2")
    assert table.bold == {1}


def test_one_seed_has_no_interval_and_no_verdict():
    table = accuracy_table(setting(fedavg=[0.5], moon=[0.6]), "t")
    assert table.columns[-1] == "difference to fedavg, points"
    assert table.rows[1][-1] == "+10.0"


def test_two_seeds_have_no_interval_and_the_table_and_json_say_so():
    found = setting(fedavg=[0.5, 0.7], moon=[0.6, 0.9])
    table = accuracy_table(found, "t")
    assert [row[table.columns.index("95 % interval")] for row in table.rows] == ["2 seeds: no interval"] * 2
    assert table.rows[1][-2].startswith("+15.0 (-48.5 to +78.5), 2 pairs"), (
        "a difference keeps its interval, with its n"
    )
    over = found.as_json()["methods"][0]["accuracy"]
    assert (over["low"], over["high"], over["n"], over["remark"]) == (None, None, 2, "2 seeds: no interval")


def test_intervals_of_accuracies_end_at_0_and_100_per_cent():
    found = setting(fedavg=[0.0, 0.1, 0.9], moon=[0.7, 1.0, 1.0], solo=[1.0, 1.0, 1.0])
    table = accuracy_table(found, "t")
    low, high, equal = (row[table.columns.index("95 % interval")] for row in table.rows)
    assert (low, high.split(" to ")[1], equal) == ("0.0 to 100.0", "100.0", "3 equal seeds: no interval")
    for method in found.as_json()["methods"]:
        assert (
            0
            <= (method["accuracy"]["low"] or 0)
            <= method["accuracy"]["mean"]
            <= (method["accuracy"]["high"] or 1)
            <= 1
        )


@pytest.mark.parametrize(
    ("rounds", "every", "averaged"),
    [(1, 1, 1), (5, 1, 1), (9, 1, 2), (5, 2, 1), (17, 2, 2)],  # of 17 rounds, every second and the last: 9 evaluated
)
def test_terminal_page_json_listing_and_python_show_the_same_accuracy(place, rounds, every, averaged):
    words = ["compare", "moon", "fedavg", *QUICK, "--rounds", str(rounds), "--evaluate-every", str(every)]
    words += ["--seeds", "0,1", "--out", "both"]
    compared = moonfed(*words)
    assert compared.code == 0, compared.err
    methods = moonfed(*words, "--resume", "--json").value
    page = moonfed("report", "both", "-o", "page.html", "--tsne", "0", "--json").value["settings"][0]["methods"]
    listed = moonfed("runs", "both", "--json").value
    named: Any = {"epochs": 1, "parties": 4, "batch": 120, "floor": 120, "evaluate_every": every, "rounds": rounds}
    there: Any = {"out": "both", "resume": True, "progress": False}
    python = compare(["moon", "fedavg"], "mlp", seeds=[0, 1], **named, **there)
    html = Path("page.html").read_text()
    for method in methods:
        name = method["method"]
        (same,) = [other for other in page if other["method"] == name]
        by_seed = [entry["value"] for entry in method["accuracy"]["by_seed"]]
        logs = [[r["accuracy"] for r in rows(Path("both") / name / f"seed-{seed}")] for seed in (0, 1)]
        evaluated = [[value for value in log if value is not None] for log in logs]
        assert by_seed == [statistics.fmean(log[-averaged:]) for log in evaluated]
        assert (method["accuracy"], method["final_accuracy"]) == (same["accuracy"], same["final_accuracy"])
        assert by_seed == [run["accuracy"] for run in listed if run["algorithm"] == name]
        assert by_seed == [run.accuracy for run in python[name].runs]
        assert [log[-1] for log in evaluated] == [run.final_accuracy for run in python[name].runs]
        assert method["accuracy"]["mean"] == python[name].accuracy
        shown = f"{100 * method['accuracy']['mean']:.1f} ± {100 * method['accuracy']['std']:.1f}"
        line = next(line for line in compared.out.splitlines() if line.split()[:1] == [name])
        assert re.findall(r"\d+\.\d ± \d+\.\d", line)[0] == shown
        assert re.search(rf">{name}<.*?>{re.escape(shown)}<", html, flags=re.DOTALL)
        if method["difference"] is not None:
            assert method["difference"] == same["difference"], "the same sign and size on the screen and on the page"
            gap = f"{signed(100 * method['difference']['mean'])} ("
            assert gap in line
            assert gap in html
