"""Tables on the terminal."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from moonfed.bench.timing import BenchResult
from moonfed.report.by_party import AtParty
from moonfed.report.summary import Summary, paired_difference
from moonfed.training.config import Config


def compare_table(found: Sequence[Summary], config: Config, kind: str = "method") -> None:
    """Print the comparison of methods or settings, the best mean in bold."""
    means = [s.mean for s in found if s.mean is not None]
    base = next((s for s in found if s.method == "fedavg" and s.mean is not None), None)
    table = _table(title=_setting(config))
    table.add_column(kind, no_wrap=True)
    accuracy = f"{config.data.judged} accuracy"
    rows = config.data.judged_on if config.data.validation else "all test rows"
    table.add_column(accuracy, justify="right", no_wrap=True)
    table.add_column("by seed", no_wrap=False)
    if base is not None:
        table.add_column("against fedavg", justify="right", no_wrap=True)
    table.add_column("MB a round", justify="right")
    for summary in found:
        gap = paired_difference(summary, base) if base is not None and summary is not base else None
        cells = [summary.method, _accuracy(summary), "  ".join(f"{a:.1%}" for a in summary.accuracies)]
        if base is not None:
            cells.append("" if gap is None else f"{100 * gap:+.1f} points")
        best = summary.mean is not None and summary.mean == max(means)
        table.add_row(*cells, f"{summary.megabytes:.2f}", style="bold" if best else None)
    _print(table)
    _print(f"{accuracy}: of the model after the last round, on {rows}" + _footnotes(found))


def by_party_table(found: Sequence[AtParty], most: int = 40) -> None:
    """Print the accuracy at each party by name; of many parties, the worst."""
    if not found:
        return
    methods = list(found[0].accuracies)
    table = _table()
    table.add_column("party", no_wrap=True)
    judged = f"{found[0].judged} rows"
    for name in ("rows", judged, *(method or "accuracy" for method in methods)):
        table.add_column(name, justify="right")
    shown = found
    if len(found) > most:
        shown = sorted(found, key=lambda at: min([a for a in at.accuracies.values() if a is not None], default=2))[
            :most
        ]
    for at in shown:
        cells = [f"no {judged}" if a is None else f"{a:.1%}" for a in at.accuracies.values()]
        table.add_row(at.party, str(at.rows), str(at.test_rows), *cells)
    _print(table)
    some = f"; the {most} worst of {len(found)} parties" if len(found) > most else ""
    _print(f"accuracy of the final model on each party's own {judged}{some}")


def _footnotes(found: Sequence[Summary]) -> str:
    notes = "; ± is the standard deviation over the seeds" if any(len(s.seeds) > 1 for s in found) else ""
    if any(s.method == "solo" for s in found):
        notes += "; solo: the mean over the parties' own models"
    return notes


def bench_table(found: BenchResult) -> None:
    """Print what was timed, and the ratios."""
    machine = found.machine
    table = _table(title=f"{machine['device']}, {machine['threads']} threads, torch {machine['torch']}")
    words = ("way", "precision", "algorithm", "augmented")
    for name in (*words, "trials", "lanes", "us a party-step", "times eager, in turn", "s a round and trial"):
        table.add_column(name, justify="left" if name in words else "right")
    for timing in found.timings:
        cells = (timing.way, timing.precision, timing.algorithm, "yes" if timing.augmented else "no")
        cells += (str(timing.trials), str(timing.lanes or ""), f"{timing.us_per_party_step:.0f}")
        some = (timing.times_as_fast_as_eager, timing.seconds_per_round_and_trial)
        table.add_row(*cells, *("" if value is None else f"{value:.2f}" for value in some))
    _print(table)
    for name, value in found.ratios().items():
        _print(f"{name} {value:.2f}")


def partition_table(split: dict[str, Any]) -> None:
    """Print who holds how many rows of which class."""
    seed = "" if split["partition"] == "natural" else f", split seed {split['seed']}"
    table = _table(title=f"{split['dataset']}, {split['rows']} rows, {split['partition']}{seed}")
    classes = split.get("class_names") or [str(k) for k in range(len(split["class_counts"][0]))]
    parties = split.get("party_names") or [str(k) for k in range(len(split["sizes"]))]
    for name in ("party", "rows", *classes):
        table.add_column(name, justify="left" if name == "party" and split.get("party_names") else "right")
    if len(split["class_counts"][0]) > 20:
        table = _table(title=table.title)
        for name in ("party", "rows", "classes held", "largest class"):
            table.add_column(name, justify="right")
        for party, rows, counts in zip(parties, split["sizes"], split["class_counts"], strict=True):
            held = sum(count > 0 for count in counts)
            table.add_row(party, str(rows), str(held), f"{classes[counts.index(max(counts))]} ({max(counts)} rows)")
    else:
        for party, rows, counts in zip(parties, split["sizes"], split["class_counts"], strict=True):
            table.add_row(party, str(rows), *(str(count) if count else "·" for count in counts))
    _print(table)
    _print(
        f"rows a party: mean {split['mean']:.1f}, standard deviation {split['std']:.1f}, "
        f"from {min(split['sizes'])} to {max(split['sizes'])}"
    )


def runs_table(found: Sequence[dict[str, Any]], folder: Path) -> None:
    """Print what has been run."""
    if not found:
        _print(f"no runs in {folder} yet; start one with: moonfed run")
        return
    table = _table()
    for name in ("folder", "algorithm", "data", "seed", "rounds", "accuracy", "state"):
        table.add_column(name, justify="right" if name in ("seed", "rounds", "accuracy") else "left")
    for run in found:
        accuracy = run.get("accuracy")
        table.add_row(
            run["folder"],
            run.get("algorithm", ""),
            run.get("dataset", ""),
            str(run.get("seed", "")),
            f"{run['rounds']}/{run['asked']}" if "rounds" in run else "",
            "" if accuracy is None else f"{accuracy:.1%}",
            run["state"],
        )
    _print(table)


def data_table(found: Sequence[dict[str, Any]]) -> None:
    """Print the data sets, and whether each is here or where it comes from."""
    table = _table()
    for name in ("data set", "training rows", "test rows", "classes", "pictures", "MB", "where"):
        table.add_column(name, justify="left" if name in ("data set", "where") else "right", overflow="fold")
    for item in found:
        where = {
            "here": item["path"],
            "built in": "built in",
            "begun": f"{item['bytes'] / 1e6:.1f} MB have come, the rest is at {item['sources'][0]}",
            "not here": f"not here; from {', else '.join(item['sources'])}",
        }[item["state"]]
        table.add_row(
            item["name"],
            f"{item['train']:,}",
            f"{item['test']:,}",
            str(item["classes"]),
            "x".join(str(n) for n in item["shape"]),
            f"{item['size'] / 1e6:,.1f}",
            where,
        )
    _print(table)


def tuning_table(found: dict[str, Any]) -> None:
    """Print the settings with their held-out accuracy, how sure the choice is, and the command to run next."""
    table = _table(f"{found['tried']} of {found['grid']} settings tried, {found['trials']} trials")
    table.add_column("setting", no_wrap=True)
    table.add_column("held-out accuracy", justify="right", no_wrap=True)
    table.add_column("95 % interval", no_wrap=True)
    table.add_column("seeds", justify="right")
    for item in sorted(found["settings"], key=_rank):
        chosen = found["difference"] and item["setting"] == found["difference"]["best"]
        table.add_row(*_tuned(item), style="bold" if chosen else None)
    _print(table)
    _print(f"{found['read']}; the test set was not looked at")
    if found["picking_seeds"]:
        few = "the last two were compared on seeds that had no part in picking them; the others were dropped on the way"
        _print(f"{few}, and the figure of each is over the seeds it had")
    else:
        _print("the best of several, chosen by these same numbers, looks a little better than it is")
    _print(f"\n{found['sure']}")
    _print(f"next: {found['command']}")


def _rank(item: dict[str, Any]) -> tuple[bool, float]:
    return not item["in_last_comparison"], -(item["accuracy"]["mean"] if item["accuracy"] else -1.0)


def _tuned(item: dict[str, Any]) -> tuple[str, str, str, str]:
    over = item["accuracy"]
    failed = f", {item['failed']} failed" if item["failed"] else ""
    if over is None:
        return item["setting"], "failed", "", str(item["failed"])
    ends = "" if over["low"] is None else f"{over['low']:.1%} to {over['high']:.1%}"
    return item["setting"], f"{over['mean']:.1%}", ends, f"{over['n']}{failed}"


def _setting(config: Config) -> str:
    data, train = config.data, config.train
    skew = f", beta {data.beta:g}" if data.partition in ("dirichlet", "dirichlet-pure", "quantity") else ""
    return (
        f"{data.dataset}, {data.parties} parties ({data.partition}{skew}), "
        f"{train.rounds} rounds of {train.epochs} local epochs, {config.model.model}"
    )


def _accuracy(summary: Summary) -> str:
    if summary.mean is None:
        return "failed" if summary.failures else "not run"
    spread = f" ± {100 * (summary.std or 0):.1f}" if len(summary.seeds) > 1 else ""
    failed = f" ({len(summary.failures)} failed)" if summary.failures else ""
    return f"{100 * summary.mean:.1f}{spread} %{failed}"


def _table(title: Any = None) -> Table:
    return Table(title=title, title_justify="left", title_style="", box=box.SIMPLE_HEAD, pad_edge=False)


def _print(what: Any) -> None:
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, 160)
    console.print(what)
