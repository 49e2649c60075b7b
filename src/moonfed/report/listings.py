"""Tables of the commands that list things: partition, runs, data list, tune, reproduce --list."""

import math
from collections.abc import Sequence
from typing import Any

from moonfed.core.wording import counted
from moonfed.experiments.statistics import Interval
from moonfed.report.blocks import Table
from moonfed.report.cell_text import ends_text

MAX_CLASS_COLUMNS = 20
MAX_PARTIES_PRINTED = 1000


def partition_table(split: dict[str, Any]) -> Table:
    """Rows of each class at each party; with many classes, only the largest class of each party."""
    seed = "" if split["partition"] == "natural" else f", split seed {split['seed']}"
    caption = f"{split['dataset']}, {counted(split['rows'], 'row')}, {split['partition']}{seed}"
    classes = split.get("class_names") or [str(k) for k in range(len(split["class_counts"][0]))]
    parties = split.get("party_names") or [str(k) for k in range(len(split["sizes"]))]
    note = (
        f"rows per party: mean {split['mean']:.1f}, standard deviation {split['std']:.1f}, "
        f"from {split['smallest']} to {split['largest']}"
    )
    if split["parties"] > MAX_PARTIES_PRINTED:
        note += f"; the first {MAX_PARTIES_PRINTED:,} of {split['parties']:,} parties"
    lines = list(zip(parties, split["sizes"], split["class_counts"], strict=True))[:MAX_PARTIES_PRINTED]
    if len(classes) > MAX_CLASS_COLUMNS:
        columns = ["party", "rows", "classes present", "largest class"]
        rows = [
            [
                name,
                str(size),
                str(sum(n > 0 for n in counts)),
                f"{classes[counts.index(max(counts))]} ({counted(max(counts), 'row')})",
            ]
            for name, size, counts in lines
        ]
    else:
        columns = ["party", "rows", *classes]
        rows = [[name, str(size), *(str(n) if n else "·" for n in counts)] for name, size, counts in lines]
    align = ("l" if split.get("party_names") else "r") + "r" * (len(columns) - 1)
    return Table("partition", caption, columns, rows, align, note=note)


def runs_table(runs: Sequence[dict[str, Any]]) -> Table:
    """Runs with their progress, accuracy and state."""
    rows = [
        [
            run["folder"],
            run.get("algorithm", ""),
            run.get("dataset", ""),
            str(run.get("seed", "")),
            f"{run['rounds']}/{run['rounds_requested']}" if "rounds" in run else "",
            *("" if run.get(key) is None else f"{run[key]:.1%}" for key in ("accuracy", "final_accuracy")),
            run.get("accuracy_on", ""),
            run["state"],
        ]
        for run in runs
    ]
    columns = ["folder", "algorithm", "data", "seed", "rounds", "accuracy", "final accuracy", "on", "state"]
    note = "accuracy: mean of the last quarter of the evaluated rounds, at most ten; final accuracy: the last one"
    if any(run.get("patience") for run in runs):
        note += "; of runs with --patience, both are those of the best round"
    kinds = {run["accuracy_on"] for run in runs if "accuracy_on" in run}
    if any(kind.startswith("own ") for kind in kinds):
        note += "; on own rows: personal models, each on rows like its party's own"
    if len({kind.removeprefix("own ") for kind in kinds}) > 1:
        note += "; on held-out rows: a choice between settings, on test rows: a result"
    return Table("runs", "", columns, rows, "lllrrrrll", note=note)


def data_table(datasets: Sequence[dict[str, Any]]) -> Table:
    """Data sets with their size, and where they are or come from."""
    rows = [
        [
            item["name"],
            f"{item['train']:,}",
            f"{item['test']:,}",
            str(item["classes"]),
            "x".join(str(n) for n in item["shape"]),
            f"{item['size'] / 1e6:,.1f}",
            _location(item),
        ]
        for item in datasets
    ]
    columns = ["data set", "training rows", "test rows", "classes", "shape of a row", "MB", "location"]
    return Table("data", "", columns, rows, "lrrrrrl")


def _location(item: dict[str, Any]) -> str:
    return {
        "here": item["path"],
        "built in": "built in",
        "begun": f"{item['bytes'] / 1e6:.1f} MB downloaded, the rest is at {item['sources'][0]}",
        "not here": f"not downloaded; from {', else '.join(item['sources'])}",
    }[item["state"]]


def tuning_table(search: dict[str, Any]) -> Table:
    """Settings of a search with their held-out accuracy, the best in bold."""
    caption = f"{search['tried']} of {counted(search['grid'], 'setting')} tried, {counted(search['trials'], 'trial')}"
    finalists = [search["best"], *([search["difference"]["runner_up"]] if search["difference"] else [])]
    settings = sorted(search["settings"], key=lambda item: _rank(item, finalists))
    bold = frozenset(place for place, item in enumerate(settings) if item["setting"] == search["best"])
    note = f"held-out accuracy: {search['measure']}; the test set was not used"
    if search["selection_seeds"]:
        note += (
            "\nthe two finalists were compared on seeds that were not used to select them; the figure of every other "
            "setting is over the seeds it was tried with"
        )
    else:
        note += "\nthe best setting was selected by these same numbers, so its accuracy is slightly optimistic"
    columns = ["setting", "held-out accuracy", "95 % interval", "seeds"]
    return Table("tune", caption, columns, [_setting_row(item) for item in settings], "lrlr", note=note, bold=bold)


def _rank(item: dict[str, Any], finalists: Sequence[str]) -> tuple[int, bool, float]:
    """Order the settings as the verdict does: the best, the runner-up, then by accuracy."""
    place = finalists.index(item["setting"]) if item["setting"] in finalists else len(finalists)
    return place, not item["in_final_comparison"], -(item["accuracy"]["mean"] if item["accuracy"] else -1.0)


def _setting_row(item: dict[str, Any]) -> list[str]:
    over = item["accuracy"]
    failed = f", {item['failed']} failed" if item["failed"] else ""
    if over is None:
        return [item["setting"], "failed", "", str(item["failed"])]
    ends = ends_text(Interval(**over), sign="%")
    return [item["setting"], f"{over['mean']:.1%}", ends, f"{over['n']}{failed}"]


def recipes_table(recipes: Sequence[dict[str, Any]]) -> Table:
    """Recipes with their data sets, trials and estimated time."""
    rows: list[list[str]] = []
    for item in recipes:
        data = ", ".join(f"{'+' if here else '-'}{name}" for name, here in item["here"].items())
        marks = " [SMOKE]" if item["scale"] == "smoke" else " [ours]" if item["ours"] else ""
        about = duration(item["seconds"]) if item["trials_left"] else "" if item["trials"] else "no training"
        counts = [str(item["trials"]), str(item["trials_left"]), ", ".join(map(str, item["rounds"]))]
        rows.append([item["id"], item["title"] + marks, data, *counts, about])
    rates = {(d, r["seconds"], r["source"]) for item in recipes for d, r in item["rates"].items()}
    notes = [
        f"{dataset}: about {step_time(seconds)} per party-step, from {source}"
        for dataset, seconds, source in sorted(rates)
    ]
    notes.append("time: an estimate, each as if run alone; runs that several recipes share are made once")
    columns = ["id", "content", "data (+ here, - missing)", "trials", "left", "rounds", "time"]
    return Table("recipes", "", columns, rows, "lllrrlr", note="\n".join(notes))


def duration(seconds: float) -> str:
    """Format an estimated duration in the unit that fits, as exactly as an estimate is meant."""
    units = (("years", 365 * 86400), ("months", 30 * 86400), ("days", 86400), ("h", 3600), ("min", 60))
    unit, size = next(((unit, size) for unit, size in units if seconds >= 2 * size), ("s", 1))
    value = max(1.0, seconds / size)
    step = 10 ** int(math.log10(value)) if value >= 100 else 5 if value >= 10 else 1
    return f"about {step * round(value / step):,} {unit}"


def step_time(seconds: float) -> str:
    """Format the duration of one step with two digits: 44 ms, 5.1 s."""
    unit, factor = ("us", 1e6) if seconds < 1e-3 else ("ms", 1e3) if seconds < 1 else ("s", 1.0)
    return f"{float(f'{factor * seconds:.2g}'):g} {unit}"
