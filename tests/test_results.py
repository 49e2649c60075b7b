"""What is written down under results/ follows from the rows that lie beside it."""

import json
from pathlib import Path
from statistics import fmean, stdev

import pytest

from moonfed.run.stats import interval

RESULTS = Path(__file__).parent.parent / "results"
TABLE1 = (RESULTS / "table1" / "README.md").read_text()
FRONT = (RESULTS.parent / "README.md").read_text()
ROWS = json.loads((RESULTS / "table1" / "rounds.json").read_text())["rounds"]
BEFORE = json.loads((RESULTS / "cifar10" / "published-setting.json").read_text())["rounds"]
METHODS = ("moon", "fedavg", "fedprox-mu0.01", "scaffold", "scaffold-niid")


def last_ten(method: str) -> list[float]:
    return [100 * fmean(ROWS[f"{method}-seed{seed}"]["accuracy"][-10:]) for seed in range(3)]


@pytest.mark.parametrize("method", METHODS)
def test_table_1_is_the_mean_of_the_last_ten_rounds_of_its_rows(method):
    values = last_ten(method)
    said = f"{fmean(values):.1f} ± {stdev(values):.1f}"
    assert said in TABLE1
    assert said in FRONT


@pytest.mark.parametrize("rival", [*METHODS[1:], "solo"])
def test_moons_lead_and_its_interval_follow_from_the_rows(rival):
    found = interval([a - b for a, b in zip(last_ten("moon"), last_ten(rival), strict=True)])
    assert found.low is not None
    assert found.high is not None
    assert f"| {found.mean:+.1f} | {found.low:+.1f} to {found.high:+.1f} |" in TABLE1
    assert f"{found.mean:+.1f} ({found.low:.1f} to {found.high:.1f})" in FRONT


def test_what_bf16_costs_follows_from_the_rows_of_both_runs():
    text = (RESULTS / "speed.md").read_text()
    gaps: dict[str, list[float]] = {}
    for method, name in (("moon", "MOON"), ("fedavg", "FedAvg")):
        for seed in range(3):
            before = [row["accuracy"] for row in BEFORE[f"{method}-seed{seed}"]]
            old, new = 100 * fmean(before[-10:]), last_ten(method)[seed]
            assert f"| {name}, seed {seed} | {old:.2f} | {new:.2f} | {new - old:.2f} |" in text
            gaps.setdefault(method, []).append(old - new)
    for values in (gaps["moon"] + gaps["fedavg"], gaps["moon"], gaps["fedavg"]):
        found = interval(values)
        assert f"{found.mean:.2f}" in text
        assert f"{found.low:.2f} to {found.high:.2f}" in text
