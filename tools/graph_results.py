"""MOON and FedAvg without a server, on three graphs of 16 parties: the table of results/methods.md.

python tools/graph_results.py run OUT SEEDS [METHOD ...]   # on a GPU; a command that was stopped is continued
python tools/graph_results.py collect OUT FILE             # all trials below OUT, a line of JSON each
python tools/graph_results.py table FILE                   # as Markdown
"""

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from moonfed.experiments.statistics import paired
from moonfed.storage.run_record import read_runs

GRAPHS = ("ring", "torus", "complete")
METHODS = ("moon:mu=5", "fedavg")
SETTINGS = (
    "--dataset cifar10 --parties 16 --partition-seed 0 --rounds 50 --evaluate-every 5 --precision fp16 --device cuda"
)
FIGURES = ("accuracy", "worst_accuracy", "consensus_accuracy", "consensus_distance")


def on_graph(method: str, graph: str) -> str:
    """Write a method with its settings and its graph as compare takes them."""
    name, _, values = method.partition(":")
    return f"{name}+gossip:{values + ',' if values else ''}topology={graph}"


def trials(out: Path) -> list[dict[str, Any]]:
    """Read every trial below a folder, finished or not: its graph, and the figures of its evaluated rounds."""
    lines: list[dict[str, Any]] = []
    for record in read_runs([out]):
        config, rows = record.config, [row for row in record.rows if row["accuracy"] is not None]
        figures = {key: [row.get(key) for row in rows] for key in FIGURES}
        lines.append(
            {
                "graph": config.algorithm.options["topology"],
                "method": config.algorithm.name,
                "seed": config.run.seed,
                "rounds": [row["round"] for row in rows],
                "trained": len(record.rows),
                "bytes": sum(row["bytes_up"] for row in record.rows),
                **figures,
            }
        )
    return lines


def table(lines: list[dict[str, Any]]) -> list[str]:
    """Write the last round that all trials have, by graph and method: mean over seeds, MOON's difference to FedAvg."""
    last = min(line["rounds"][-1] for line in lines)
    head = f"graph, round {last} | method | seeds | mean of parties, % | worst party, % | consensus model, %"
    rows = [
        f"| {head} | consensus distance | MOON minus FedAvg | MB per round, one way |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for graph in GRAPHS:
        of_method = {
            method: {line["seed"]: line for line in lines if (line["graph"], line["method"]) == (graph, method)}
            for method in ("moon", "fedavg")
        }
        moon, fedavg = ({s: at(t, "consensus_accuracy", last) for s, t in o.items()} for o in of_method.values())
        gap = paired(moon, fedavg)
        for method, own in of_method.items():
            mean = {key: statistics.fmean(at(trial, key, last) for trial in own.values()) for key in FIGURES}
            accuracies = [f"{100 * mean[key]:.1f}" for key in FIGURES[:3]]
            against = "" if gap is None or method == "fedavg" else f"{100 * gap.mean:+.1f}"
            if against and gap is not None and gap.low is not None and gap.high is not None:
                against += f" ({100 * gap.low:+.1f} to {100 * gap.high:+.1f})"
            megabytes = statistics.fmean(trial["bytes"] / trial["trained"] for trial in own.values()) / 1e6
            cells = [graph, method, str(len(own)), *accuracies, f"{mean['consensus_distance']:.2f}", against]
            rows.append(f"| {' | '.join(cells)} | {megabytes:.1f} |")
    return rows


def at(trial: dict[str, Any], key: str, number: int) -> float:
    """Return a figure of a trial after a round."""
    return trial[key][trial["rounds"].index(number)]


def main() -> None:
    """Carry out one of the steps above."""
    step, first, *rest = sys.argv[1:]
    if step == "run":
        seeds, *chosen = rest
        for method in chosen or METHODS:  # one stack for each local rule; they may run side by side
            names = [on_graph(method, graph) for graph in GRAPHS]
            words = ["compare", *names, *SETTINGS.split(), "--seeds", seeds, "--resume", "--out", f"{first}/{method}"]
            subprocess.run([sys.executable, "-W", "ignore", "-m", "moonfed", *words], check=True)
    elif step == "collect":
        Path(rest[0]).write_text("".join(json.dumps(trial) + "\n" for trial in trials(Path(first))))
    elif step == "table":
        print("\n".join(table([json.loads(line) for line in Path(first).read_text().splitlines()])))
    else:
        raise SystemExit(f"no step {step!r}; needed: run, collect or table")


if __name__ == "__main__":
    main()
