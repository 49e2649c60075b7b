"""Global methods side by side: settings from a small grid, full runs, tables of results/methods.md.

    python tools/methods_table.py DATA grid OUT [PART/PARTS]     # short runs, judged on held-out training rows
    python tools/methods_table.py DATA collect OUT FILE [shared] # all ended trials below OUT, a line of JSON each
    python tools/methods_table.py DATA choose FILE CHOSEN        # the best value of each method of a grid
    python tools/methods_table.py DATA run OUT CHOSEN SPLIT SEEDS [METHOD ...]   # with them, on the test rows
    python tools/methods_table.py DATA table FILE SPLIT          # the table of a split, as Markdown

DATA is cifar10 (on a GPU) or digits (on a CPU). SPLIT is dirichlet-0.1, two-classes or dirichlet-0.5. With "shared",
seconds are marked as those of processes that ran side by side. Methods of one local rule share a stack; parts of the
grid are divided by it and may run side by side. A command that was stopped is continued by the same command.
tools/methods_figure.py draws the figure.
"""

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from moonfed.experiments.statistics import accuracy_interval, paired, rounds_to
from moonfed.storage.run_record import read_runs
from moonfed.training.accuracy import accuracy
from moonfed.training.registry import ALGORITHMS, full_name

GRID: dict[str, list[str]] = {
    "fedavg": [""],
    "fedavgm": ["server_momentum=0.5", "server_momentum=0.9"],
    "fedadam": [
        f"server_lr={lr},server_tau={tau}" for lr, tau in ((0.01, 0.001), (0.03, 0.001), (0.1, 0.001), (0.1, 0.01))
    ],
    "fedyogi": ["server_lr=0.01", "server_lr=0.03"],
    "fedadagrad": ["server_lr=0.03", "server_lr=0.1"],
    "fedexp": [""],
    "feddisco": [""],
    "fednova": [""],
    "moon": ["mu=1", "mu=5"],
    "fedprox": ["mu=0.01", "mu=0.1"],
    "scaffold": [""],
    "feddyn": ["dynamic=0.01", "dynamic=0.1", "dynamic=0.3"],
    "fedcm": ["own_part=0.1", "own_part=0.3"],
    "fedacg": ["look_ahead=0.5", "look_ahead=0.85"],
    "fedntd": ["beta=0.1", "beta=0.3", "beta=1"],
    "fedlmd": ["beta=0.1", "beta=0.3", "beta=1"],
    "fedvls": ["distillation=0.1", "distillation=0.5"],
    "fedrs": ["alpha=0.5", "alpha=0.7", "alpha=0.9"],
    "fedlc": ["margin=0.5", "margin=1"],
    "balanced-softmax": [""],
    "feddecorr": ["beta=0.03", "beta=0.1", "beta=0.3"],
    "fedsam": ["rho=0.02", "rho=0.05", "rho=0.1"],
}
PHASES = {"fedavg+ccvr": "fedavg", "moon+ccvr": "moon"}  # with the settings of the method that they calibrate
SPLITS = {
    "dirichlet-0.1": ["--partition", "dirichlet", "--beta", "0.1"],
    "two-classes": ["--partition", "shards", "--classes-per-party", "2"],
    "dirichlet-0.5": ["--partition", "dirichlet", "--beta", "0.5"],
}


class Workload(NamedTuple):
    """What is trained, and for how long."""

    settings: str
    floor: int  # the fewest rows of a party at Dirichlet 0.1: at least a batch
    rounds: int
    grid_rounds: int
    grid_seeds: str
    processor: str  # whose seconds a table counts


WORKLOADS = {
    "cifar10": Workload(
        "--dataset cifar10 --parties 10 --partition-seed 0 --precision fp16 --device cuda", 64, 100, 30, "0", "GPU"
    ),
    "digits": Workload("--dataset digits --parties 10 --device cpu", 24, 20, 20, "0,1,2", "CPU"),
}


def spelled(method: str, values: str) -> str:
    """Write a method with its settings as compare takes it."""
    return f"{method}:{values}" if values else method


def of_part(methods: list[str], part: str) -> list[str]:
    """Return the methods whose local rule belongs to a part, 1/2 for example."""
    number, parts = (int(word) for word in part.split("/"))
    rules = list(dict.fromkeys(ALGORITHMS[method].local for method in GRID))
    return [m for m in methods if rules.index(ALGORITHMS[m.split(":")[0].split("+")[0]].local) % parts == number - 1]


def compare(methods: list[str], out: Path, work: Workload, split: str, *options: str) -> None:
    """Train methods side by side with the command that a user types."""
    floor = ["--floor", str(work.floor)] if split == "dirichlet-0.1" else []
    words = [*work.settings.split(), *SPLITS[split], *floor, *options, "--resume", "--out", str(out)]
    subprocess.run([sys.executable, "-W", "ignore", "-m", "moonfed", "compare", *methods, *words], check=True)


def trials(out: Path, seconds: str) -> list[dict[str, Any]]:
    """Read every trial below a folder that has ended: its settings, and what the tables need of its rounds."""
    lines: list[dict[str, Any]] = []
    for record in read_runs([out]):
        config, rows = record.config, record.rows
        if not (record.finished or record.failure):
            continue
        lines.append(
            {
                "method": full_name(config.algorithm.name, config.algorithm.server),
                "options": config.algorithm.options,
                "split": [config.data.partition, config.data.beta, config.data.classes_per_party],
                "validation": config.data.validation,
                "seed": config.run.seed,
                "failure": record.failure,
                "accuracy": [row["accuracy"] for row in rows],
                "bytes": sum(row["bytes_up"] + row["bytes_down"] for row in rows),
                seconds: round(sum(row.get("training_seconds", 0.0) for row in rows), 1),
            }
        )
    return lines


def mean_of_last(trial: dict[str, Any]) -> float:
    """Return the mean accuracy over the last quarter of a trial's rounds, at most ten; 0 if it failed."""
    if trial["failure"] is not None:
        return 0.0
    return accuracy([{"accuracy": value} for value in trial["accuracy"]]) or 0.0


def choose(lines: list[dict[str, Any]], chosen: Path) -> None:
    """Write the best value of each method on the held-out rows, and print all of them as a table."""
    scores: dict[tuple[str, str], list[float]] = {}
    for trial in lines:
        method = trial["method"]
        if not trial["validation"]:
            continue  # judged on the test rows, which choose nothing
        for values in GRID[method]:
            pairs = dict(pair.split("=") for pair in values.split(",") if pair)
            if all(float(value) == float(trial["options"][name]) for name, value in pairs.items()):
                scores.setdefault((method, values), []).append(mean_of_last(trial))
    tried: dict[str, list[tuple[float, str]]] = {}
    for (method, values), of_seeds in scores.items():  # one that failed with any seed is not chosen
        tried.setdefault(method, []).append((statistics.fmean(of_seeds) if all(of_seeds) else 0.0, values))
    best = {method: max(pairs) for method, pairs in tried.items()}
    print("| method | accuracy on held-out training rows, % |")
    print("|---|---|")
    for method in sorted(tried, key=lambda name: -best[name][0]):
        cells = [_grid_cell(score, values, (score, values) == best[method]) for score, values in tried[method]]
        print(f"| {method} | {'; '.join(cells)} |")
    settings = {method: values for method, (_, values) in best.items()}
    settings |= {method: settings[base] for method, base in PHASES.items()}
    chosen.write_text(json.dumps(settings, indent=1, sort_keys=True) + "\n")


def _grid_cell(score: float, values: str, best: bool) -> str:
    number = f"{100 * score:.1f}" if score else "failed"
    return f"{values.replace(',', ', ')}: {number}".removeprefix(": ") + (" (chosen)" if best and values else "")


def of_split(lines: list[dict[str, Any]], split: str) -> list[dict[str, Any]]:
    """Return the trials of a split that were judged on the test rows."""
    options = SPLITS[split]
    kind, beta = options[1], float(options[3])
    judged = [line for line in lines if line["split"][0] == kind and not line["validation"]]
    return [line for line in judged if kind != "dirichlet" or line["split"][1] == beta]


def table(lines: list[dict[str, Any]], split: str, processor: str) -> list[str]:
    """Write the table of a split: accuracy, paired difference to FedAvg, rounds to FedAvg's accuracy, cost.

    A method that diverged with some seed has no accuracy and comes last.
    """
    methods: dict[str, dict[int, dict[str, Any]]] = {}
    for line in of_split(lines, split):
        methods.setdefault(line["method"], {})[line["seed"]] = line
    base = {seed: mean_of_last(trial) for seed, trial in methods["fedavg"].items()}
    head = "method | settings | seeds | accuracy, % | minus FedAvg | rounds to FedAvg's accuracy | MB"
    rows = [f"| {head} | {processor}-seconds |", "|---|---|---|---|---|---|---|---|"]
    failed = {name for name, own in methods.items() if any(trial["failure"] for trial in own.values())}
    means = {name: statistics.fmean(mean_of_last(trial) for trial in own.values()) for name, own in methods.items()}
    for name in sorted(methods, key=lambda name: (name in failed, -means[name])):
        own = methods[name]
        settings = ", ".join(f"{key} {own[min(own)]['options'][key]}" for key in _varied(name))
        megabytes = statistics.fmean(trial["bytes"] for trial in own.values()) / 1e6
        cells = [name, settings, str(len(own)), *_accuracy_cells(name, own, base)]
        rows.append(f"| {' | '.join(cells)} | {megabytes:.0f} | {_seconds(own)} |")
    return rows


def _seconds(own: dict[int, dict[str, Any]]) -> str:
    """Write the mean seconds of training; those of processes that shared a GPU say nothing of a method."""
    seconds = [trial["training_seconds"] for trial in own.values() if "training_seconds" in trial]
    return f"{statistics.fmean(seconds):.0f}" if len(seconds) == len(own) else "shared"


def _varied(method: str) -> list[str]:
    """Name the settings of a method that the grid chose."""
    first = GRID[PHASES.get(method, method)][0]
    return [pair.split("=")[0] for pair in first.split(",") if pair]


def _accuracy_cells(name: str, own: dict[int, dict[str, Any]], base: dict[int, float]) -> list[str]:
    """Write the mean with its interval, the difference to FedAvg, and the rounds to FedAvg's mean accuracy."""
    failures = sum(trial["failure"] is not None for trial in own.values())
    if failures:
        return [f"diverged with {failures} of {len(own)} seeds", "", ""]
    scores = {seed: mean_of_last(trial) for seed, trial in own.items()}
    mean, difference = accuracy_interval(list(scores.values())), paired(scores, base)
    spread = "" if mean.low is None else f" ({100 * mean.low:.1f} to {100 * (mean.high or 0):.1f})"
    against = "" if difference is None or name == "fedavg" else f"{100 * difference.mean:+.1f}"
    if against and difference is not None and difference.low is not None:
        against += f" ({100 * difference.low:+.1f} to {100 * (difference.high or 0):+.1f})"
    rows = [[{"round": i, "accuracy": a} for i, a in enumerate(trial["accuracy"], 1)] for trial in own.values()]
    reached = [rounds_to(log, statistics.fmean(base.values())) for log in rows]
    known = [number for number in reached if number is not None]
    rounds = f"{statistics.fmean(known):.0f}" if len(known) == len(own) else f"{len(known)} of {len(own)} seeds"
    return [f"{100 * mean.mean:.1f}{spread}", against, rounds]


def main() -> None:
    """Carry out one of the steps above."""
    data, step, first, *rest = sys.argv[1:]
    work, out = WORKLOADS[data], Path(first)
    if step == "grid":
        methods = [spelled(method, values) for method, grid in GRID.items() for values in grid]
        part = rest[0] if rest else "1/1"
        options = ["--rounds", str(work.grid_rounds), "--seeds", work.grid_seeds, "--validation", "0.1"]
        compare(of_part(methods, part), out / "grid" / part.replace("/", "-"), work, "dirichlet-0.1", *options)
    elif step == "choose":
        choose([json.loads(line) for line in out.read_text().splitlines()], Path(rest[0]))
    elif step == "run":
        chosen, split, seeds, *names = json.loads(Path(rest[0]).read_text()), *rest[1:]
        methods = [spelled(method, chosen[method]) for method in names or chosen]
        compare(methods, out, work, split, "--rounds", str(work.rounds), "--seeds", seeds)
    elif step == "collect":
        seconds = "training_seconds_beside_others" if rest[1:] == ["shared"] else "training_seconds"
        Path(rest[0]).write_text("".join(json.dumps(trial) + "\n" for trial in trials(out, seconds)))
    elif step == "table":
        lines = [json.loads(line) for line in out.read_text().splitlines()]
        print("\n".join(table(lines, rest[0], work.processor)))
    else:
        raise SystemExit(f"no step {step!r}; needed: grid, choose, run, collect or table")


if __name__ == "__main__":
    main()
