"""Compares default MOON and FedAvg on small tables with logistic regression on all rows in one place.

    python tools/small_tables.py FOLDER                       # write the tables; needs the packages that hold them
    python tools/table_results.py run FOLDER [NAME ...]       # train; one result file per table, split and seed
    python tools/table_results.py show FOLDER                 # print the Markdown table of results/tables.md

Nothing but the label and the party column is given to moonfed: all settings are the defaults. Tables without parties
are split by the default partition (Dirichlet, beta 0.5, ten parties) and, as a second line, evenly (--partition iid).
Logistic regression is scikit-learn's with its defaults (C = 1), on the same rows, hold-outs and encoding: numbers
standardised, categories one-hot, flags of missing numbers. The seed of the trial is also that of the hold-out.
Results that are there are not computed again.
"""

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from small_tables import TABLES, Table

from moonfed import compare
from moonfed.experiments.statistics import Interval, paired
from moonfed.training.config import make_config
from moonfed.training.setup import load_data

METHODS = ("moon", "fedavg")
SEEDS, FEW_SEEDS = range(5), range(3)  # each is the seed of the hold-out and of the trial
EXPENSIVE = {"attrition", "contraception", "churn", "olive", "digits_columns", "affairs", "mortgages"}
COLUMNS = (
    *("rows, classes, parties", "seeds", "epochs", "largest class, %", "logistic regression, %"),
    *("MOON, points", "FedAvg, points"),
    *("log loss: regression, MOON, FedAvg", "test loss above its minimum, %"),
)


def splits(table: Table) -> tuple[str, ...]:
    """Name the partitions that a table is tried with; the first is its default."""
    return ("natural",) if table.party else ("dirichlet", "iid")


def seeds(table: Table, split: str) -> range:
    """Return the seeds that a table is tried with."""
    return FEW_SEEDS if table.name in EXPENSIVE or split == "iid" else SEEDS


def result_path(folder: Path, table: Table, seed: int, split: str) -> Path:
    """Say where the result of a table, a seed and a split is kept."""
    return folder / "results" / f"{table.name}-{split}-{seed}.json"


def run(folder: Path, names: list[str]) -> None:
    """Train on every table, seed by seed, so that early figures cover all tables."""
    (folder / "results").mkdir(exist_ok=True)
    for seed in SEEDS:
        for table in TABLES:
            for split in splits(table):
                path = result_path(folder, table, seed, split)
                wanted = seed in seeds(table, split) and (not names or table.name in names)
                if wanted and not path.exists():
                    found = measure(folder / f"{table.name}.csv", table, seed, split)
                    path.write_text(json.dumps(found, indent=2))
                    print(path.name, flush=True)


def measure(path: Path, table: Table, seed: int, split: str) -> dict[str, Any]:
    """Train logistic regression and the methods on the training rows of one hold-out."""
    read: dict[str, Any] = {"label": table.label, "holdout_seed": seed}
    read |= {"party": table.party} if table.party else {}
    data = load_data(make_config({"data": read | {"path": str(path)}}).data)
    x, y, test_x, test_y = (t.numpy() for t in (data.inputs, data.labels, data.test_inputs, data.test_labels))
    pooled = LogisticRegression(max_iter=10_000).fit(x, y)
    losses = log_loss(test_y, pooled.predict_proba(test_x), labels=range(data.classes))
    found: dict[str, Any] = {
        "rows": len(y),
        "test_rows": len(test_y),
        "classes": data.classes,
        "parties": len(data.party_names) or 10,
        "largest_class": float(data.test_labels.bincount().max()) / len(test_y),
        "logistic": {"accuracy": pooled.score(test_x, test_y), "log_loss": losses},
    }
    asked: Any = read | ({} if table.party else {"partition": split})
    outcome = compare(METHODS, None, str(path), seeds=[seed], progress=False, threads=1, **asked)
    for method, result in outcome.results.items():
        train = result.runs[0].config.train
        found[method] = {
            "accuracy": result.accuracy,
            "log_loss": result.metrics["log_loss"],
            "test_losses": [row["test_loss"] for row in result.rows],
            "epochs": train.epochs,
            "weight_decay": train.weight_decay,
            "batch": train.batch,
        }
    return found


def show(folder: Path) -> None:
    """Print one line per table and split."""
    print(" | ".join(("| table", *COLUMNS)) + " |")
    print("|---" * (1 + len(COLUMNS)) + "|")
    for table in TABLES:
        for split in splits(table):
            paths = {seed: result_path(folder, table, seed, split) for seed in seeds(table, split)}
            found = {seed: json.loads(path.read_text()) for seed, path in paths.items() if path.exists()}
            if found:
                print(line(table, split, found))


def line(table: Table, split: str, found: dict[int, Any]) -> str:
    """Describe a table: the accuracy of the regression, and the paired differences of the methods to it."""
    first = next(iter(found.values()))
    name = f"{table.name}{' *' if table.chosen_on else ''}{'' if split != 'iid' else ', even split'}"
    size = f"{first['rows']:,}, {first['classes']}, {first['parties']}{' own' if table.party else ''}"
    logistic = statistics.fmean(one["logistic"]["accuracy"] for one in found.values())
    gaps, losses, rises = [], [statistics.fmean(one["logistic"]["log_loss"] for one in found.values())], []
    regression = {seed: one["logistic"]["accuracy"] for seed, one in found.items()}
    for method in METHODS:
        gaps.append(points(paired({seed: one[method]["accuracy"] for seed, one in found.items()}, regression)))
        trials = [one[method] for one in found.values()]
        losses.append(statistics.fmean(trial["log_loss"] for trial in trials))
        rises.append(statistics.fmean(trial["test_losses"][-1] / min(trial["test_losses"]) - 1 for trial in trials))
    largest = statistics.fmean(one["largest_class"] for one in found.values())
    cells = [name, size, str(len(found)), str(first[METHODS[0]]["epochs"]), f"{100 * largest:.1f}"]
    cells += [f"{100 * logistic:.1f}", *gaps]
    cells += [", ".join(f"{loss:.3f}" for loss in losses), f"{100 * max(rises):.0f}"]
    return f"| {' | '.join(cells)} |"


def points(gap: Interval | None) -> str:
    """Write a difference with its 95 % interval, in points."""
    assert gap is not None
    if gap.low is None or gap.high is None or gap.low == gap.high:
        return signed(gap.mean)
    return f"{signed(gap.mean)} ({signed(gap.low)} to {signed(gap.high)})"


def signed(fraction: float) -> str:
    """Write a fraction in points with its sign; zero has none."""
    text = f"{100 * fraction:+.1f}"
    return "0.0" if float(text) == 0 else text


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(Path(sys.argv[2]), sys.argv[3:])
    else:
        show(Path(sys.argv[2]))
