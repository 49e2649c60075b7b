"""The tables under results/ recompute from the round records beside them."""

import json
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from moonfed.experiments.statistics import interval
from moonfed.training.accuracy import accuracy

RESULTS = Path(__file__).parents[2] / "results"
TABLE1 = (RESULTS / "table1" / "README.md").read_text()
FRONT = (RESULTS.parent / "README.md").read_text()
ROWS = json.loads((RESULTS / "table1" / "rounds.json").read_text())["rounds"]
BEFORE = json.loads((RESULTS / "cifar10" / "published-setting.json").read_text())["rounds"]
METHODS = ("moon", "fedavg", "fedprox-mu0.01", "scaffold", "scaffold-niid")


def measured(method: str) -> list[float]:
    """Accuracy of the three seeds, in per cent; SOLO's 30 rounds were averaged over the last ten at that commit."""
    curves = [ROWS[f"{method}-seed{seed}"]["accuracy"] for seed in range(3)]
    return [percent(curve[-10:]) if method == "solo" else percent_of(curve) for curve in curves]


def measured_with_all_seeds(method: str) -> list[float]:
    """Accuracy of every seed on the paper's split: nine of the methods that were run again, else three."""
    more = [json.loads((RESULTS / "table1" / f"seeds-{name}.json").read_text())["rounds"] for name in ("3-6", "7-8")]
    curves = {name: row["accuracy"] for part in more for name, row in part.items()}
    added = [percent_of(curves[name]) for seed in range(3, 9) if (name := f"{method}-seed{seed}") in curves]
    return measured(method) + added


def percent_of(curve: list[float]) -> float:
    assert len(curve) == 100
    value = accuracy([{"accuracy": a} for a in curve])
    assert value is not None
    return 100 * value


@pytest.mark.parametrize("method", METHODS)
def test_table_1_is_the_mean_of_the_last_ten_rounds_of_its_rows(method):
    values = measured(method)
    said = f"{fmean(values):.1f} ± {stdev(values):.1f}"
    assert said in TABLE1
    values = measured_with_all_seeds(method)
    said = f"{fmean(values):.1f} ± {stdev(values):.1f}"
    assert said in TABLE1
    assert said in FRONT or method == "scaffold-niid"


@pytest.mark.parametrize("rival", [*METHODS[1:], "solo"])
def test_moons_lead_and_its_interval_follow_from_the_rows(rival):
    found = interval([a - b for a, b in zip(measured("moon"), measured(rival), strict=True)])
    assert found.low is not None
    assert found.high is not None
    assert f"| {found.mean:+.1f} | {found.low:+.1f} to {found.high:+.1f} |" in TABLE1
    pairs = zip(measured_with_all_seeds("moon"), measured_with_all_seeds(rival), strict=False)
    found = interval([a - b for a, b in pairs])
    assert f"{found.mean:+.1f} ({found.low:.1f} to {found.high:.1f})" in FRONT or rival == "scaffold-niid"


SPEED, NOTES = (
    " ".join(path.read_text().split()) for path in (RESULTS / "speed.md", RESULTS.parent / "notes" / "speed.md")
)
EXACT = json.loads((RESULTS / "cifar10" / "fp32.json").read_text())


def percent(accuracies: list[float]) -> float:
    return 100 * fmean(accuracies)


def precisions() -> dict[str, dict[str, list[float]]]:
    """The accuracies by round of the runs that speed.md compares, by precision and trial."""
    bf16 = json.loads((RESULTS / "cifar10" / "table1-bf16.json").read_text())["rounds"]
    names = [f"{method}-seed{seed}" for method in ("moon", "fedavg") for seed in range(3)]
    return {
        "fp32": {name: EXACT["rounds"][name] for name in names},
        "fp16": {name: ROWS[name]["accuracy"] for name in names},
        "bf16": {name: bf16[name]["accuracy"] for name in names},
        "early": {name: [row["accuracy"] for row in BEFORE[name]] for name in names},
    }


def test_the_effect_of_precision_on_accuracy_follows_from_the_rows_of_the_runs():
    runs = precisions()
    ends = {kind: {name: percent(rows[-10:]) for name, rows in trials.items()} for kind, trials in runs.items()}
    exact = ends.pop("fp32")
    for name, end in exact.items():
        method, seed = name.split("-seed")
        cells = " | ".join(f"{found[name]:.2f} | {found[name] - end:+.2f}" for found in ends.values())
        said = {"moon": "MOON", "fedavg": "FedAvg"}[method]
        assert f"| {said}, seed {seed} | {end:.2f} | {cells} |" in SPEED
    for which, label in (("", "six pairs: mean, 95 % t-interval"), ("moon", "MOON alone"), ("fedavg", "FedAvg alone")):
        cells = []
        for found in ends.values():
            gaps = interval([found[name] - end for name, end in exact.items() if name.startswith(which)])
            cells.append(f"{gaps.mean:+.2f}, {gaps.low:+.2f} to {gaps.high:+.2f}")
        assert f"| {label} | | {' | | '.join(cells)} |" in SPEED


def test_the_second_comparison_of_precisions_follows_from_its_rows():
    again = {k: json.loads((RESULTS / "cifar10" / f"{k}.json").read_text())["rounds"] for k in ("fp16", "tf32")}
    exact, first = (
        {name: percent(rows[-10:]) for name, rows in precisions()[kind].items()} for kind in ("fp32", "fp16")
    )
    ends = {kind: {name: percent(rows[-10:]) for name, rows in trials.items()} for kind, trials in again.items()}
    for name, end in exact.items():
        cells = " | ".join(f"{found[name]:.2f} | {found[name] - end:+.2f}" for found in ends.values())
        assert f"{name[-1]} | {end:.2f} | {cells} |" in SPEED
    pairs = [interval([found[name] - end for name, end in exact.items()]) for found in ends.values()]
    assert " | | ".join(f"{gap.mean:+.2f}, {gap.low:+.2f} to {gap.high:+.2f}" for gap in pairs) in SPEED
    both = interval([(first[name] + ends["fp16"][name]) / 2 - end for name, end in exact.items()])
    assert f"{both.mean:+.2f}, {both.low:+.2f} to {both.high:+.2f}" in SPEED
    for found in ends.values():
        lead = interval([found[f"moon-seed{seed}"] - found[f"fedavg-seed{seed}"] for seed in range(3)])
        assert f"({lead.low:.1f} to {lead.high:.1f})" in SPEED


def test_which_precisions_lose_half_a_point_by_pair_or_by_seed_follows_from_the_rows():
    runs = precisions()
    lost: dict[str, bool] = {}
    for kind in ("fp16", "bf16", "early"):
        gaps = {n: percent(runs[kind][n][-10:]) - percent(rows[-10:]) for n, rows in runs["fp32"].items()}
        by_seed = interval(
            [fmean([gaps[f"{method}-seed{seed}"] for method in ("moon", "fedavg")]) for seed in range(3)]
        )
        assert f"{by_seed.mean:.2f}" in SPEED
        assert f"({by_seed.low:.2f} to {by_seed.high:.2f}" in SPEED
        pairs = interval(list(gaps.values()))
        assert pairs.low is not None
        assert by_seed.low is not None
        lost[kind] = min(pairs.low, by_seed.low) < -0.5
    assert lost == {"fp16": False, "bf16": True, "early": False}


def test_the_spread_between_runs_of_one_seed_follows_from_their_rows():
    again = EXACT["others"]["moon-seed0 once more"]["accuracy"]
    runs = precisions()
    one, other, half = (percent(rows[60:70]) for rows in (again, *(runs[k]["moon-seed0"] for k in ("fp32", "fp16"))))
    assert f"gave {one:.2f} and {other:.2f} over rounds 61 to 70 (fp16: {half:.2f})" in NOTES
    gaps = interval([percent(runs["early"][n][-10:]) - percent(rows[-10:]) for n, rows in runs["fp16"].items()])
    assert f"{gaps.mean:.2f} below that run ({gaps.low:.4f} to {gaps.high:.2f})" in NOTES
    names = list(runs["fp32"])
    best = [max(runs, key=lambda kind, name=name: percent(runs[kind][name][-10:])) for name in names]
    assert best.count("early") == 5


def test_the_curves_of_the_sequential_and_stacked_engines_follow_from_their_rows():
    others = EXACT["others"]
    curve, again = (others[f"moon-seed0 {k}"]["accuracy"] for k in ("by the sequential engine on a CPU", "once more"))
    kinds = {kind: trials["moon-seed0"] for kind, trials in precisions().items()}
    runs = [curve, kinds["fp32"], again, kinds["fp16"], kinds["bf16"], kinds["early"]]
    assert len(curve) == 30
    for first in range(0, 30, 10):
        cells = " | ".join(f"{percent(run[first : first + 10]):.2f}" for run in runs)
        assert f"| {first + 1} to {first + 10} | {cells} |" in NOTES


def test_the_speed_of_fp16_is_the_one_that_its_bench_measured():
    bench = json.loads((RESULTS / "bench" / "h200-fp16.json").read_text())
    three, one = (
        next(t for t in bench["timings"] if t["algorithm"] == "moon" and t["way"] == "compiled" and t["trials"] == n)
        for n in (3, 1)
    )
    assert f"3 trials in one stack, evaluation included | {three['seconds_per_round_and_trial']:.2f} s |" in SPEED
    assert f"one trial alone | {one['seconds_per_round_and_trial']:.2f} s |" in SPEED
    assert f"with augmentation | {bench['moon_minus_fedavg_us']:.1f} us" in SPEED
    assert f"without augmentation | {bench['moon_over_fedavg_without_augmentation']:.2f} times" in SPEED
    lanes = [f"{t['us_per_party_step']:.1f}" for t in bench["timings"] if "parties" in t["way"]]
    assert f"| {lanes[0]}, {lanes[1]} and {lanes[2]} us |" in SPEED


def test_the_leading_table_of_speed_follows_from_what_was_measured():
    timings = json.loads((RESULTS / "bench" / "h200-kernels.json").read_text())["timings"]

    def found(workload: str, **facts: Any) -> list[dict[str, Any]]:
        same = [t for t in timings if t["workload"] == workload and all(t.get(k) == v for k, v in facts.items())]
        assert same
        return same

    three = found("table", algorithm="moon", trials=3, augmented=True)[-1]
    assert f"| 0.25 | {three['seconds_per_round_and_trial']:.3f}, **met**" in SPEED
    (alone,) = found("table", trials=1)
    assert f"| 0.45 | {alone['seconds_per_round_and_trial']:.3f}, **met**" in SPEED
    (moon,), (fedavg,) = (found("table", algorithm=name, augmented=False) for name in ("moon", "fedavg"))
    us = moon["us_per_party_step"], fedavg["us_per_party_step"]
    assert f"| 1.10 | {us[0] / us[1]:.2f} ({us[0]:.1f} and {us[1]:.1f} us), missed" in SPEED
    images = [round(t["images_per_s"], -2) for t in found("resnet50")]
    assert f"| {images[0]:,} and {images[1]:,} / {images[2]:,}, **met**" in SPEED
    empty, full = (sorted(t["first_round_s"] for t in found("first-round", caches=k)) for k in ("empty", "full"))
    assert f"| {empty[0]:.1f} and {empty[1]:.1f} s, **met**" in SPEED
    assert f"| {full[0]:.1f} and {full[1]:.1f} s, missed" in SPEED
    (small,) = found("cross-device", precision="tf32", compiled=True)
    assert f"| {small['s_per_round']:.3f} (median {small['median_s']:.3f}), missed" in SPEED


@pytest.mark.parametrize("method", ["moon", "fedavg"])
def test_the_speed_on_a_cpu_is_the_one_that_its_benches_measured(method):
    benches = [json.loads((RESULTS / "bench" / f"cpu-{i}.json").read_text()) for i in range(1, 6)]
    ratios = [f"{bench[f'stacked_over_eager_{method}']:.2f}" for bench in benches]
    *first, last = (f"**{ratio}**" if method == "moon" else ratio for ratio in ratios)
    assert f"{'MOON' if method == 'moon' else 'FedAvg'} {', '.join(first)} and {last}" in SPEED
    each = [
        ratio
        for bench in benches
        for t in bench["timings"]
        if t["algorithm"] == method
        for ratio in t.get("each_time", ())
    ]
    assert f"from {min(each):.2f} to {max(each):.2f} for" in SPEED
