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


def _end(value: float | None) -> str:
    assert value is not None
    return f"{value:.2f}" if abs(value) >= 0.005 else f"{value:.4f}"  # which side of 0 it is on must be seen


def test_what_fp16_and_bf16_cost_follows_from_the_rows_of_the_runs():
    text = (RESULTS / "speed.md").read_text()
    bf16 = json.loads((RESULTS / "cifar10" / "table1-bf16.json").read_text())["rounds"]
    costs: dict[str, list[tuple[float, float]]] = {}
    for method, name in (("moon", "MOON"), ("fedavg", "FedAvg")):
        for seed in range(3):
            old = 100 * fmean([row["accuracy"] for row in BEFORE[f"{method}-seed{seed}"]][-10:])
            small = 100 * fmean(bf16[f"{method}-seed{seed}"]["accuracy"][-10:])
            new = last_ten(method)[seed]
            line = f"{old:.2f} | {new:.2f} | {new - old:.2f} | {small:.2f} | {small - old:.2f} |"
            assert f"| {name}, seed {seed} | {line}" in text
            costs.setdefault(name, []).append((old - new, old - small))
    every = [pair for mine in costs.values() for pair in mine]
    for name, pairs in {"six pairs: loss, 95 % t-interval": every, **costs}.items():
        half, brain = (interval(list(values)) for values in zip(*pairs, strict=True))
        label = f"{name} alone" if name in costs else name
        said = [f"{i.mean:.2f}, {_end(i.low)} to {_end(i.high)}" for i in (half, brain)]
        assert f"| {label} | | | {said[0]} | | {said[1]} |" in text


def test_how_near_fp16_stays_to_fp32_follows_from_the_rows():
    text = (RESULTS / "speed.md").read_text()
    exact = json.loads((RESULTS / "cifar10" / "fp32.json").read_text())["rounds"]
    before = [row["accuracy"] for row in BEFORE["moon-seed0"]]
    runs = [exact["stacked"], ROWS["moon-seed0"]["accuracy"], before]
    for first in (21, 61):
        means = [f"{100 * fmean(run[first - 1 : 70]):.2f}" for run in runs]
        assert f"| rounds {first} to 70 | {' | '.join(means)} |" in text
    for name, run in (("sequential", exact["sequential"]), ("stacked", runs[0]), ("fp16", runs[1])):
        one, two, three = (f"{100 * value:.1f}" for value in run[:3])
        assert (f"{one}, {two} and {three} %" if name == "sequential" else f"{one}, {two} and {three}") in text


def test_the_speed_of_fp16_is_the_one_that_its_bench_measured():
    text = (RESULTS / "speed.md").read_text()
    bench = json.loads((RESULTS / "bench" / "h200-fp16.json").read_text())
    three, one = (
        next(t for t in bench["timings"] if t["algorithm"] == "moon" and t["way"] == "compiled" and t["trials"] == n)
        for n in (3, 1)
    )
    assert f"| 0.6 s | {three['seconds_per_round_and_trial']:.2f} s, **met**" in text
    assert f"| 0.9 s | {one['seconds_per_round_and_trial']:.2f} s, **met**" in text
    assert f"| 25 us | {bench['moon_minus_fedavg_us']:.1f} us" in text
    assert f"| 1.15 times | {bench['moon_over_fedavg_without_augmentation']:.2f} " in text
    lanes = [f"{t['us_per_party_step']:.1f}" for t in bench["timings"] if "parties" in t["way"]]
    assert f"| {lanes[0]}, {lanes[1]} and {lanes[2]} us: falls" in text
