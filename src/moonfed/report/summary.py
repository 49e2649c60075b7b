"""The summary that a page opens with: every method of every group in one table."""

from collections.abc import Mapping, Sequence

from moonfed.core.wording import counted
from moonfed.experiments.statistics import verdict
from moonfed.report.blocks import Block, Paragraph, Section, Table
from moonfed.report.cell_text import EMPTY, interval_text, joined, mean_and_deviation, points
from moonfed.report.figures import colour
from moonfed.report.group_names import distinguishing, shared_words
from moonfed.report.methods import Setting, shared_settings
from moonfed.report.sections import (
    HOLDOUT_NOTE,
    accuracy_table,
    best_rows,
    difference_plot,
    paired_by,
    remarks,
    trial_count,
)
from moonfed.training.accuracy import accuracy_window

MAX_REMARKS = 8
MAX_NAMED_GROUPS = 3  # beyond which groups are counted instead of named


def summary_section(settings: Sequence[Setting], names: Sequence[str], anchors: Mapping[str, str]) -> Section:
    """Open a page: with one group, its methods; with several, all of them, each group's name a link to its details."""
    if len(settings) > 1:
        blocks: list[Block] = [Paragraph(_what_differs(settings)), summary_table(settings, anchors)]
        return Section("Summary", [*blocks, *_open_trials(settings)])
    return Section("Summary", opening(settings[0], names[0]))


def opening(setting: Setting, name: str, plotted: bool = True) -> list[Block]:
    """Open a group: what it is, what a reader must know first, its methods and their differences."""
    plot = difference_plot(setting, name) if plotted else None
    table = accuracy_table(setting, f"{name}-accuracy")
    return [Paragraph(f"{setting.description}."), *remarks(setting), table, *([] if plot is None else [plot])]


def summary_table(settings: Sequence[Setting], anchors: Mapping[str, str]) -> Table:
    """Accuracy, interval, number of seeds and difference to the reference, by group and method."""
    compared = any(len(setting.shown) > 1 for setting in settings)
    units = " or ".join(dict.fromkeys(f"{setting.noun}s" for setting in settings))
    rows: list[list[str]] = []
    colours: list[str] = []
    bold: set[int] = set()
    for setting in settings:
        bold |= {len(rows) + place for place in best_rows(setting)}
        for place, method in enumerate(setting.shown):
            done, trials = len(method.rows), len(method.records)
            values = method.independent(method.accuracy)
            seeds = str(done) if done == trials else f"{done} of {trials}"
            seeds = trial_count(method) if method.unit else seeds
            cells = [mean_and_deviation(values), interval_text(values, method.noun), seeds]
            gap = setting.difference(method)
            if compared:
                reference = "reference" if method is setting.baseline and len(setting.shown) > 1 else EMPTY
                cells += [reference, EMPTY] if gap is None else [points(gap), verdict(gap)]
            rows.append([setting.title, method.name, *cells])
            colours.append(colour(place))
    columns = ["group", "method", "accuracy, %", "95 % interval", units]
    columns += [f"difference to {_reference(settings)}, points", "verdict"] if compared else []
    align = "llrrr" + ("rl" if compared else "")
    caption = " and ".join(dict.fromkeys(s.config.data.judged for s in settings)).capitalize() + " accuracy by method"
    note = _note(settings, compared, units)
    return Table("summary", caption, columns, rows, align, colours, note, frozenset(bold), True, dict(anchors))


def _reference(settings: Sequence[Setting]) -> str:
    """Name the method that differences refer to, if it is the same in every group."""
    names = {setting.baseline.name for setting in settings if len(setting.shown) > 1}
    return names.pop() if len(names) == 1 else "the reference"


def _note(settings: Sequence[Setting], compared: bool, units: str) -> str:
    note = (
        f"Accuracy: {_windows(settings)}. ± is the standard deviation over the {units} (n - 1). Intervals are "
        f"Student's t over the {units}; those of accuracies are cut to 0 to 100 % and need three {units}."
    )
    note += "" if units == "seeds" else f" {HOLDOUT_NOTE}"
    pairs = paired_by("seed" if units == "seeds" else "hold-out")
    return f"{note} Differences are paired by {pairs}, with their 95 % intervals." if compared else note


def _windows(settings: Sequence[Setting]) -> str:
    """Name the rounds behind the accuracies, by group where groups differ in them."""
    titles: dict[str, list[str]] = {}
    for setting in settings:
        window = accuracy_window(next(iter(setting.baseline.rows.values()), []))
        titles.setdefault(window, []).append(setting.title)
    if len(titles) == 1:
        return next(iter(titles))
    return "; ".join(
        f"{window} ({', '.join(found) if len(found) <= MAX_NAMED_GROUPS else counted(len(found), 'group')})"
        for window, found in titles.items()
    )


def _what_differs(settings: Sequence[Setting]) -> str:
    groups = [shared_settings(setting.methods[0].records[0]) for setting in settings]
    keys = joined(key.replace("_", " ") for key in distinguishing(groups))
    shared = shared_words(groups)
    same = f" All: {shared}." if shared else ""
    return (
        f"{counted(len(groups), 'group')}, named by what differs between them ({keys}).{same} Methods are compared "
        "only within a group; the name of a group leads to its curves and tables."
    )


def _open_trials(settings: Sequence[Setting]) -> list[Block]:
    """Warn of trials that failed or are not finished; the means are over the others."""
    found = [
        f"{setting.title}: {method.name}: {remark}"
        for setting in settings
        for method in setting.methods
        for remark in method.open_trials
    ]
    if not found:
        return []
    more = f"; and {len(found) - MAX_REMARKS} more" if len(found) > MAX_REMARKS else ""
    return [Paragraph(f"Not finished: {'; '.join(found[:MAX_REMARKS])}{more}.", warning=True)]
