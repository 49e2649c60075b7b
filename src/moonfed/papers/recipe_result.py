"""The result of a recipe as plain data: published and measured values side by side, and the verdicts.

Accuracies are fractions here; published values are converted, and text output shows both in per cent.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from moonfed.core.errors import UserError
from moonfed.core.files import read_json
from moonfed.experiments.statistics import accuracy_interval, deviation, interval
from moonfed.papers.published import Place, Published, library
from moonfed.papers.readings import accuracy_curve, first_crossing, loss, loss_curve, seconds_per_round
from moonfed.papers.recipe import LOWER_IS_BETTER, WITHOUT_TRIALS, Contrast, Line, Recipe
from moonfed.papers.recipe_trials import Key, ReproductionOptions, has_failed, rounds_done
from moonfed.papers.scale import scaled
from moonfed.papers.separation import features_path, separation
from moonfed.papers.verdict import judge, judge_level, units
from moonfed.storage.run_files import CONFIG
from moonfed.training.accuracy import accuracy, final_accuracy
from moonfed.training.records import RoundRecord
from moonfed.training.split_summary import describe_split

Json = dict[str, Any]
SMOKE_WARNING = "smoke test: the digits, an mlp, few parties and rounds; it only shows that the command works"
PRINTED_UNIT = {"accuracy": 0.01}  # accuracies are printed in per cent


@dataclass(frozen=True)
class Reading:
    """The value of a line in one trial."""

    value: float
    final: float | None = None  # of the last round alone
    over_parties: float | None = None  # standard deviation over the parties' own models
    curve: Sequence[float] = ()
    split: dict[str, Any] | None = None


def result_of(recipe: Recipe, options: ReproductionOptions) -> Json:
    """Collect what is known of a recipe; lines without trials are marked as not run."""
    printed = library().tables[recipe.published or recipe.id]
    table = replace(printed, values={}, spread={}) if recipe.ours else printed  # the published values are of other data
    readings = [(line, read_line(line, options)) for line in recipe.lines]
    by_place = {line.place: (line, read) for line, read in readings}
    smoke = options.scale == "smoke"
    return {
        "id": recipe.id,
        "title": recipe.title,
        "scale": options.scale,
        "ours": recipe.ours,
        "source": {
            "document": library().documents[table.document],
            "place": table.place,
            "says": table.says,
        },
        "datasets": recipe.datasets,
        "note": recipe.note,
        "smoke": SMOKE_WARNING if smoke else None,
        "seeds": list(options.seeds),
        "splits": list(options.splits),
        "lines": [_line(line, read, table, options) for line, read in readings],
        "differences": [difference_of(c, by_place, printed, smoke, recipe.ours) for c in recipe.contrasts],
        "claims": [
            {"place": c.place, "document": library().documents[c.document], "text": c.text}
            for c in library().claims
            if recipe.id in c.recipes
        ],
        "beside": _reference(recipe.reference),
        "circumstances": _circumstances(recipe, options),
    }


def read_line(line: Line, options: ReproductionOptions) -> dict[Key, Reading]:
    """Read every trial of a line that has been run."""
    if line.measure in WITHOUT_TRIALS:
        keys = [(split, options.seeds[0]) for split in options.splits]
        return {key: _read_split(line, key, options) for key in keys}
    found: dict[Key, Reading] = {}
    for key in options.keys:
        rows = options.rows(line.cell, key)
        base = options.rows(line.base, key) if line.base is not None else None
        if rows is not None and (line.base is None or base is not None):
            found[key] = _read(line, key, options, rows, base or rows)
    return found


def _read(
    line: Line, key: Key, options: ReproductionOptions, rows: list[RoundRecord], base: list[RoundRecord]
) -> Reading:
    if line.measure == "separation":
        return Reading(separation(line, key, options))
    if line.measure == "seconds":
        return Reading(seconds_per_round(rows))
    if line.measure == "loss":
        return Reading(loss(rows), loss_curve(rows)[-1], curve=loss_curve(rows))
    if line.measure == "accuracy":
        return Reading(_known(accuracy(rows)), final_accuracy(rows), rows[-1].get("accuracy_std"), accuracy_curve(rows))
    crossing = first_crossing(rows, _known(final_accuracy(base)))
    if line.measure == "first":
        return Reading(crossing)
    # FedAvg's own count is all its rounds, as in the paper; its first crossing is a line of its own.
    count = len(base) if line.cell == line.base else crossing
    return Reading(len(base) / count if line.measure == "speed-up" else count)


def _known(value: float | None) -> float:
    if value is None:
        raise UserError("no round of a trial was evaluated; recipes need accuracies")
    return value


def _read_split(line: Line, key: Key, options: ReproductionOptions) -> Reading:
    split = describe_split(options.config(line.cell, key))
    value = {"split mean": split["mean"], "split std": split["std"], "split test": split["test"]}[line.measure]
    return Reading(float(value), split=split)


def _line(line: Line, read: dict[Key, Reading], table: Published, options: ReproductionOptions) -> Json:
    printed = line.printed or line.place
    cell = scaled(line.cell, options.scale)
    folders = {key: options.folder(line.cell, key) for key in options.keys}
    failed = [key for key in options.keys if key not in read and has_failed(folders[key])]
    trained = line.measure not in WITHOUT_TRIALS
    return {
        "row": line.row,
        "column": line.column,
        "measure": line.measure,
        "dataset": cell.dataset,
        "settings": cell.settings,
        "published": _printed(line.measure, table.value(printed)),
        "published_std": _printed(line.measure, table.deviation(printed)),
        "measured": _spread(line.measure, {key: r.value for key, r in read.items()}),
        "final": _spread(line.measure, {key: r.final for key, r in read.items() if r.final is not None}),
        "over_parties": _mean([r.over_parties for r in read.values() if r.over_parties is not None]),
        "state": "run" if read else "failed" if failed else "not run",
        "failed": len(failed),
        "trials": [
            {"split": key[0], "seed": key[1], "value": r.value, "final": r.final, "curve": list(r.curve)}
            | ({"folder": str(folders[key].relative_to(options.out))} if trained else {})
            | ({"features": _features_file(line, key, options)} if line.measure == "separation" else {})
            for key, r in read.items()
        ],
        "curve": [statistics.fmean(at) for at in zip(*(r.curve for r in read.values()), strict=False)],
        "splits": [r.split for r in read.values() if r.split is not None],
    }


def _features_file(line: Line, key: Key, options: ReproductionOptions) -> str:
    return str(features_path(line, key, options).relative_to(options.out))


def difference_of(
    contrast: Contrast,
    lines: dict[Place, tuple[Line, dict[Key, Reading]]],
    table: Published,
    smoke: bool,
    ours: bool = False,
) -> Json:
    """Compare a claimed difference with the trials, paired by split and seed.

    For our own variants, the published table decides which method is claimed to be ahead, but not the margin.
    """
    margins = [_margin(lines[a][0], lines[b][0], table) for a, b in contrast.pairs]
    margin = None if None in margins else statistics.fmean(m for m in margins if m is not None)
    # A difference that was published with the opposite sign is stated the way it was published.
    sign = -1.0 if margin is not None and margin < 0 and contrast.level is None else 1.0
    margin = None if ours or margin is None else sign * margin
    gaps = [_gaps(*lines[a], lines[b][1]) for a, b in contrast.pairs]
    keys = [key for key in gaps[0] if all(key in gap for gap in gaps)]
    by_trial = {key: sign * statistics.fmean(gap[key] for gap in gaps) for key in keys}
    measured = interval(units(by_trial)) if by_trial else None
    level = contrast.level
    verdict = judge(measured, margin) if level is None else judge_level(measured, level)
    return {
        "measure": lines[contrast.pairs[0][0]][0].measure,
        "text": contrast.text if sign > 0 else _reversed(contrast.text),
        "published": margin,
        "level": level,
        "measured": None if measured is None else measured._asdict() | {"trials": len(by_trial)},
        "by_trial": [{"split": k[0], "seed": k[1], "value": v} for k, v in by_trial.items()],
        "verdict": f"smoke: {verdict}" if smoke else verdict,
    }


def _printed(measure: str, value: float | None) -> float | None:
    """Convert a printed value to the unit of its measure."""
    return None if value is None else value * PRINTED_UNIT.get(measure, 1.0)


def _margin(one: Line, other: Line, table: Published) -> float | None:
    first, second = (_printed(line.measure, table.value(line.printed or line.place)) for line in (one, other))
    return None if first is None or second is None else (first - second) * _direction(one)


def _gaps(line: Line, one: dict[Key, Reading], other: dict[Key, Reading]) -> dict[Key, float]:
    return {key: (one[key].value - other[key].value) * _direction(line) for key in one if key in other}


def _direction(line: Line) -> float:
    return -1.0 if line.measure in LOWER_IS_BETTER else 1.0


def _reversed(text: str) -> str:
    words, _, column = text.partition(", ")
    row, over, other = words.partition(" over ")
    return f"{other}{over}{row}, {column}" if over else f"less: {text}"


def _spread(measure: str, values: dict[Key, float]) -> Json | None:
    if not values:
        return None
    over = accuracy_interval if measure == "accuracy" else interval
    return over(units(values))._asdict() | {"std": deviation(list(values.values())), "trials": len(values)}


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _reference(id: str) -> Json | None:
    """A published curve to show for comparison."""
    if not id:
        return None
    table = library().tables[id]
    curves = {row: [_printed("accuracy", value) for value in values] for row, values in table.values.items()}
    return {
        "source": library().documents[table.document],
        "rounds": [int(column) for column in table.columns],
        "curves": curves,
    }


def _circumstances(recipe: Recipe, options: ReproductionOptions) -> list[Json]:
    """Machines, versions and precisions of the trials, each combination once."""
    found: list[Json] = []
    for line in recipe.lines:
        for key in options.keys if line.measure not in WITHOUT_TRIALS else ():
            folder = options.folder(line.cell, key)
            if not rounds_done(folder):
                continue
            config = read_json(folder / CONFIG)
            try:
                item = {name: config[name] for name in ("versions", "machine")}
                item["precision"] = config["config"]["run"]["precision"]
            except (KeyError, TypeError):
                raise UserError(f"{folder / CONFIG} is damaged: no machine or versions; delete {folder}") from None
            if item not in found:
                found.append(item)
    return found
