"""What running a recipe showed, as plain data: published and measured side by side, and the verdicts."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from moonfed.core.errors import UserError
from moonfed.core.files import read_json
from moonfed.experiments.statistics import deviation, interval
from moonfed.papers.published import Published, library
from moonfed.papers.readings import (
    curve,
    final_accuracy,
    final_loss,
    first_crossing,
    last_accuracy,
    loss_curve,
    seconds_a_round,
)
from moonfed.papers.recipe import LOWER_IS_BETTER, WITHOUT_TRIALS, Contrast, Line, Recipe
from moonfed.papers.recipe_trials import Key, Terms, has_failed, rounds_done
from moonfed.papers.scale import scaled
from moonfed.papers.separation import features_path, separation
from moonfed.papers.verdict import judge, judge_level, units
from moonfed.storage.run_folder import CONFIG
from moonfed.training.records import RoundRecord
from moonfed.training.split_summary import describe_split

Found = dict[str, Any]


@dataclass(frozen=True)
class Reading:
    """What one trial shows of a line."""

    value: float
    last: float | None = None  # of the last round alone
    over_parties: float | None = None  # deviation over the parties' own models
    curve: Sequence[float] = ()
    split: dict[str, Any] | None = None


def result_of(recipe: Recipe, terms: Terms) -> Found:
    """Put together what is known of a recipe: a line that was not run says so."""
    printed = library().tables[recipe.published or recipe.id]
    table = replace(printed, values={}, spread={}) if recipe.ours else printed  # what was published is of other data
    readings = [(line, read_line(line, terms)) for line in recipe.lines]
    by_place = {line.place: (line, read) for line, read in readings}
    smoke = terms.scale == "smoke"
    return {
        "id": recipe.id,
        "title": recipe.title,
        "scale": terms.scale,
        "ours": recipe.ours,
        "source": {
            "document": library().documents[table.document],
            "place": table.place,
            "says": table.says,
        },
        "note": recipe.note,
        "smoke": SMOKE_WARNING if smoke else None,
        "seeds": list(terms.seeds),
        "splits": list(terms.splits),
        "lines": [_line(line, read, table, terms) for line, read in readings],
        "differences": [difference_of(c, by_place, printed, smoke, recipe.ours) for c in recipe.contrasts],
        "claims": [
            {"place": c.place, "document": library().documents[c.document], "text": c.text}
            for c in library().claims
            if recipe.id in c.recipes
        ],
        "beside": _beside(recipe.beside),
        "circumstances": _circumstances(recipe, terms),
    }


SMOKE_WARNING = "smoke: the digits, an mlp, few parties and rounds; it shows that the command works and nothing else"


def read_line(line: Line, terms: Terms) -> dict[Key, Reading]:
    """Read every trial of a line that has been run."""
    if line.measure in WITHOUT_TRIALS:
        return {(split, terms.seeds[0]): _split(line, (split, terms.seeds[0]), terms) for split in terms.splits}
    found: dict[Key, Reading] = {}
    for key in terms.keys:
        rows = terms.rows(line.cell, key)
        base = terms.rows(line.base, key) if line.base is not None else None
        if rows is not None and (line.base is None or base is not None):
            found[key] = _read(line, key, terms, rows, base or rows)
    return found


def _read(line: Line, key: Key, terms: Terms, rows: list[RoundRecord], base: list[RoundRecord]) -> Reading:
    if line.measure == "separation":
        return Reading(separation(line, key, terms))
    target, whole = base[-1]["accuracy"], len(base)
    # FedAvg's own count is all its rounds, as the paper has it; its first crossing is a line of its own.
    count = whole if line.cell == line.base else first_crossing(rows, target)
    if line.measure == "rounds":
        return Reading(count)
    if line.measure == "speed-up":
        return Reading(whole / count)
    if line.measure == "first":
        return Reading(first_crossing(rows, target))
    if line.measure == "seconds":
        return Reading(seconds_a_round(rows))
    if line.measure == "loss":
        return Reading(final_loss(rows), loss_curve(rows)[-1], curve=loss_curve(rows))
    spread = rows[-1].get("accuracy_std")
    over = None if spread is None else 100 * spread
    return Reading(final_accuracy(rows), last_accuracy(rows), over, curve(rows))


def _split(line: Line, key: Key, terms: Terms) -> Reading:
    config = terms.config(line.cell, key)
    split = describe_split(config)
    value = {"split mean": split["mean"], "split std": split["std"], "split test": split["test"]}[line.measure]
    return Reading(float(value), split=split)


def _line(line: Line, read: dict[Key, Reading], table: Published, terms: Terms) -> Found:
    printed = line.printed or line.place
    cell = scaled(line.cell, terms.scale)
    folders = {key: terms.folder(line.cell, key) for key in terms.keys}
    failed = [key for key in terms.keys if key not in read and has_failed(folders[key])]
    trained = line.measure not in WITHOUT_TRIALS
    return {
        "row": line.row,
        "column": line.column,
        "measure": line.measure,
        "dataset": cell.dataset,
        "settings": cell.settings,
        "published": table.value(printed),
        "published_std": table.deviation(printed),
        "measured": _spread({key: r.value for key, r in read.items()}),
        "last": _spread({key: r.last for key, r in read.items() if r.last is not None}),
        "over_parties": _mean([r.over_parties for r in read.values() if r.over_parties is not None]),
        "state": "run" if read else "failed" if failed else "not run",
        "failed": len(failed),
        "trials": [
            {"split": key[0], "seed": key[1], "value": r.value, "last": r.last, "curve": list(r.curve)}
            | ({"folder": str(folders[key].relative_to(terms.out))} if trained else {})
            | ({"features": _kept_at(line, key, terms)} if line.measure == "separation" else {})
            for key, r in read.items()
        ],
        "curve": [statistics.fmean(at) for at in zip(*(r.curve for r in read.values()), strict=False)],
        "splits": [r.split for r in read.values() if r.split is not None],
    }


def _kept_at(line: Line, key: Key, terms: Terms) -> str:
    return str(features_path(line, key, terms).relative_to(terms.out))


def difference_of(
    contrast: Contrast,
    lines: dict[Any, tuple[Line, dict[Key, Reading]]],
    table: Published,
    smoke: bool,
    ours: bool = False,
) -> Found:
    """Hold a stated difference against what the trials show, paired by split and seed.

    A form of our own takes from what was printed which method is ahead, and not by how much.
    """
    margins = [_margin(lines[a][0], lines[b][0], table) for a, b in contrast.pairs]
    margin = None if None in margins else statistics.fmean(m for m in margins if m is not None)
    # A difference that was published the other way round is stated the way it was published.
    sign = -1.0 if margin is not None and margin < 0 and contrast.level is None else 1.0
    margin = None if ours else margin
    gaps = [_gaps(*lines[a], lines[b][1]) for a, b in contrast.pairs]
    keys = [key for key in gaps[0] if all(key in gap for gap in gaps)]
    by_trial = {key: sign * statistics.fmean(gap[key] for gap in gaps) for key in keys}
    found = interval(units(by_trial)) if by_trial else None
    level = contrast.level
    verdict = (
        judge_level(found, level) if level is not None else judge(found, None if margin is None else sign * margin)
    )
    return {
        "measure": lines[contrast.pairs[0][0]][0].measure,
        "text": contrast.text if sign > 0 else _turned(contrast.text),
        "published": None if margin is None else sign * margin,
        "level": level,
        "measured": None if found is None else found._asdict() | {"trials": len(by_trial)},
        "by_trial": [{"split": k[0], "seed": k[1], "value": v} for k, v in by_trial.items()],
        "verdict": f"smoke: {verdict}" if smoke else verdict,
    }


def _margin(one: Line, other: Line, table: Published) -> float | None:
    values = [table.value(line.printed or line.place) for line in (one, other)]
    if values[0] is None or values[1] is None:
        return None
    return (values[0] - values[1]) * _direction(one)


def _gaps(line: Line, one: dict[Key, Reading], other: dict[Key, Reading]) -> dict[Key, float]:
    return {key: (one[key].value - other[key].value) * _direction(line) for key in one if key in other}


def _direction(line: Line) -> float:
    return -1.0 if line.measure in LOWER_IS_BETTER else 1.0


def _turned(text: str) -> str:
    words, _, column = text.partition(", ")
    row, over, other = words.partition(" over ")
    return f"{other}{over}{row}, {column}" if over else f"less: {text}"


def _spread(values: dict[Key, float]) -> Found | None:
    if not values:
        return None
    return interval(units(values))._asdict() | {"std": deviation(list(values.values())), "trials": len(values)}


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _beside(id: str) -> Found | None:
    if not id:
        return None
    table = library().tables[id]
    rounds = [int(column) for column in table.columns]
    return {"source": library().documents[table.document], "rounds": rounds, "curves": table.values}


def _circumstances(recipe: Recipe, terms: Terms) -> list[Found]:
    """On what the trials were run, each kind of machine once."""
    found: list[Found] = []
    for line in recipe.lines:
        for key in terms.keys if line.measure not in WITHOUT_TRIALS else ():
            folder = terms.folder(line.cell, key)
            if not rounds_done(folder):
                continue
            there = read_json(folder / CONFIG)
            try:
                item = {name: there[name] for name in ("versions", "machine")}
                item["precision"] = there["config"]["run"]["precision"]
            except (KeyError, TypeError):
                raise UserError(f"{folder / CONFIG} is damaged: on what it ran is not told; delete {folder}") from None
            if item not in found:
                found.append(item)
    return found
