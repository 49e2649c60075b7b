"""Tables and curves of one setting."""

import statistics
from collections.abc import Mapping, Sequence

from moonfed.core.wording import counted
from moonfed.experiments.statistics import verdict
from moonfed.report.blocks import Block, Paragraph, Plot, PlotGrid, Table
from moonfed.report.cell_text import EMPTY, interval_text, joined, mean_and_deviation, points, slug
from moonfed.report.figures import Curve, Difference, colour, curves, differences
from moonfed.report.methods import Method, Setting
from moonfed.training.accuracy import rounds_averaged
from moonfed.training.early_stopping import best_round
from moonfed.training.evaluation_rows import judged_on, judged_on_own_rows
from moonfed.training.records import RoundRecord
from moonfed.training.registry import ALGORITHMS
from moonfed.training.trial_seeds import TrialSeeds

HOLDOUT_NOTE = "A hold-out's value is the mean over its seeds; hold-outs share rows, which makes intervals too narrow."


def accuracy_table(setting: Setting, name: str, caption: str = "", kind: str = "method") -> Table:
    """The methods side by side: accuracy, final accuracy, and the paired difference to the baseline.

    Where the accuracy is that of the last round, the final accuracy is the same number and has no column. compare
    prints this table on the terminal and report puts it on the page, so both show the same figures.
    """
    several = any(len(method.accuracy) > 1 for method in setting.methods)
    compared, baseline = len(setting.shown) > 1, setting.baseline
    columns = [kind, f"{setting.noun}s", f"{baseline.accuracy_label}, %"]
    columns += ["95 % interval"] if several else []
    columns += [] if _last_round_alone(setting) else ["final accuracy, %"]
    columns += [f"difference to {baseline.name}, points"] if compared else []
    columns += ["verdict"] if compared and several else []
    rows: list[list[str]] = []
    for method in setting.shown:
        values = method.independent(method.accuracy)
        row = [method.name, trial_count(method), mean_and_deviation(values)]
        row += [interval_text(values, method.noun)] if several else []
        final = method.independent(method.final_accuracy)
        row += [] if _last_round_alone(setting) else [mean_and_deviation(final)]
        rows.append(row + (_difference_cells(setting, method, several) if compared else []))
    align = "l" + "r" * (len(columns) - 1)
    return Table(
        name,
        caption or f"{setting.config.data.judged.capitalize()} accuracy by {kind}",
        columns,
        rows,
        align[:-1] + "l" if compared and several else align,
        [colour(place) for place in range(len(rows))],
        _accuracy_note(setting, compared),
        best_rows(setting),
    )


def _difference_cells(setting: Setting, method: Method, several: bool) -> list[str]:
    gap = setting.difference(method)
    if gap is None:
        return [EMPTY] * (2 if several else 1)
    usual = len(setting.baseline.independent(setting.baseline.accuracy))
    pairs = f", {counted(gap.n, 'pair')}" if gap.n == 2 or gap.n != usual else ""
    return [points(gap) + pairs, *([verdict(gap)] if several else [])]


def trial_count(method: Method) -> str:
    """How many of a method's seeds have finished, or how many hold-outs with how many trials."""
    text = f"{len(method.rows)} of {len(method.records)}"
    if method.unit:
        text = f"{len({seeds.holdout for seeds in method.rows})} ({text} trials)"
    if method.partial and method.rows:
        text += f", round {method.rounds} of {method.records[0].config.train.rounds}"
    return text


def best_rows(setting: Setting) -> frozenset[int]:
    """The row with the highest mean accuracy, where there are several."""
    means = {place: statistics.fmean(m.independent(m.accuracy)) for place, m in enumerate(setting.shown) if m.accuracy}
    return frozenset({max(means, key=lambda place: means[place])}) if len(means) > 1 else frozenset()


def _accuracy_note(setting: Setting, compared: bool) -> str:
    config = setting.methods[0].records[0].config
    note = f"Accuracy: {_window(setting.baseline)}, on {judged_on(config)}. "
    if judged_on_own_rows(config):
        note += "These accuracies are not comparable with those of a global model on all test rows. "
    note += "" if _last_round_alone(setting) else "Final accuracy: the last round alone. "
    several = any(len(method.accuracy) > 1 for method in setting.methods)
    note += _spread_note(setting.noun, compared) if several else f"One {setting.noun}: small differences show nothing."
    presets = {r.config.algorithm.name: ALGORITHMS[r.config.algorithm.name] for m in setting.methods for r in m.records}
    if alone := [name for name, preset in presets.items() if preset.personal and not preset.local.own_rows]:
        note += f" {', '.join(alone)}: the mean over the parties' own models."
    return note


def paired_by(noun: str) -> str:
    """Say in which seeds the trials of a pair agree."""
    return "hold-out and seed" if noun == "hold-out" else "seed"


def _spread_note(noun: str, compared: bool) -> str:
    """Say what deviations, differences and intervals are over: seeds or hold-outs."""
    note = f"± is the standard deviation over the {noun}s (n - 1)."
    if noun == "hold-out":
        note += f" {HOLDOUT_NOTE}"
    if compared:
        note += f" Differences are paired by {paired_by(noun)}. Intervals are Student's t over the {noun}s; those of "
        note += f"accuracies are cut to 0 to 100 % and need three {noun}s."
    return note


def remarks(setting: Setting) -> list[Block]:
    """Remarks to read before the numbers: failed and unfinished trials, single seeds."""
    owners: dict[str, list[str]] = {}
    for method in setting.methods:
        if method.remarks:
            owners.setdefault("; ".join(method.remarks), []).append(method.name)
    everyone = len(setting.methods) if len(setting.methods) > 1 else 0
    return [
        Paragraph(f"{'every method' if len(names) == everyone else joined(names)}: {text}.", warning=True)
        for text, names in owners.items()
    ]


def curve_plots(setting: Setting, name: str) -> PlotGrid:
    """Test accuracy, test loss and training loss by round."""
    plots: list[Plot] = []
    judged = setting.config.data.judged
    graph = any("consensus_distance" in row for m in setting.methods for r in m.records for row in r.rows)
    shown = [("accuracy", f"{judged} accuracy", True), ("test_loss", f"{judged} loss", False)]
    for key, what, percent in [*shown, *([("consensus_distance", "consensus distance", False)] if graph else [])]:
        lines = [_curve(method, key) for method in setting.shown]
        alt = f"{what.capitalize()} by round. " + " ".join(_curve_text(line, percent) for line in lines)
        caption = f"{what.capitalize()} by round. {_band_note(setting)}"
        plots.append(Plot(f"{name}-{slug(what)}", curves(lines, what, percent), alt, caption + _failed_note(setting)))
    lines = [_curve(method, "supervised") for method in setting.shown]
    if any(line.seeds or line.failed for line in lines):
        what = "training loss"
        alt = f"{what.capitalize()} by round. " + " ".join(_curve_text(line, False) for line in lines)
        caption = "Cross-entropy at the parties during local training, mean over all steps of a round."
        plots.append(Plot(f"{name}-{slug(what)}", curves(lines, what), alt, caption))
    return PlotGrid(plots)


def difference_plot(setting: Setting, name: str) -> PlotGrid | None:
    """Plot of the paired differences with their intervals; None if there are none."""
    found = [(method.name, setting.difference(method), place) for place, method in enumerate(setting.shown)]
    gaps = [Difference(label, gap, place) for label, gap, place in found if gap is not None]
    if not gaps:
        return None
    baseline = setting.baseline.name
    alt = f"Differences to {baseline} in points: " + ", ".join(f"{gap.label} {points(gap.interval)}" for gap in gaps)
    caption = f"Difference in accuracy to {baseline}, paired by {paired_by(setting.noun)}; lines are 95 % t-intervals."
    if any(gap.interval.low is None for gap in gaps):
        caption += " A dot without a line is a single pair."
    return PlotGrid([Plot(f"{name}-differences", differences(gaps, baseline), alt, caption)])


def rounds_table(setting: Setting, name: str, targets: Sequence[float] = ()) -> Table:
    """Rounds that each method needs to reach the baseline's final accuracy, and to reach given accuracies."""
    baseline, trial = setting.baseline, _trial_word(setting)
    rows: list[list[str]] = []
    baseline_mean = _mean_if_all(setting.rounds_to_baseline(baseline))
    for method in setting.methods:
        found = setting.rounds_to_baseline(method)
        mean = _mean_if_all(found)
        cells = [method.name, _rounds_text(found, trial)]
        cells.append(EMPTY if mean is None else f"{baseline.rounds / mean:.1f} times")
        cells.append(EMPTY if mean is None or baseline_mean is None else f"{baseline_mean / mean:.1f} times")
        size = [value for name in ("bytes_up", "bytes_down") if (value := method.mean(name)) is not None]
        cells.append(EMPTY if mean is None else f"{mean * sum(size) / 1e6:.1f}")
        rows.append(cells + [_rounds_text(setting.rounds_to(method, target), trial) for target in targets])
    return Table(
        name,
        f"Rounds to the final accuracy of {baseline.name}",
        [
            "method",
            "rounds",
            f"speed-up over the {counted(baseline.rounds, 'round')} of {baseline.name}",
            f"speed-up over the first crossing of {baseline.name}",
            "MB until then",
            *(f"rounds to {100 * target:g} %" for target in targets),
        ],
        rows,
        colours=[colour(setting.place(method)) for method in setting.methods],
        note=f"The first round at or above the final accuracy of {baseline.name}, by {trial}, and the mean over the "
        f"{trial}s; empty if a {trial} never reaches it. {baseline.name} itself often reaches that accuracy before its "
        "last round: one speed-up is relative to that first crossing, the other to all its rounds, as in the papers.",
    )


def _last_round_alone(setting: Setting) -> bool:
    """Whether every accuracy is that of one round, the last."""
    return all(method.accuracy == method.final_accuracy for method in setting.shown)


def _window(method: Method) -> str:
    """Name the rounds that the accuracy averages."""
    rows = next(iter(method.rows.values()), [])
    if best_round(rows) is not None:
        return "the round with the lowest loss on rows set aside, whose model is kept"
    evaluated = sum(row["accuracy"] is not None for row in rows)
    averaged = rounds_averaged(evaluated)
    return "the last round" if averaged <= 1 else f"mean of the last {averaged} of {evaluated} evaluated rounds"


def _curve(method: Method, key: str) -> Curve:
    counted = [_values(rows, key) for rows in method.rows.values()]
    failed = [_values(r.rows, key) for r in method.records if r.seeds not in method.rows]
    return Curve(method.name, [v for v in counted if v], [v for v in failed if v])


def _values(rows: Sequence[RoundRecord], key: str) -> dict[int, float]:
    found = ((row["round"], row["losses"].get(key) if key == "supervised" else row.get(key)) for row in rows)
    return {number: value for number, value in found if value is not None}


def _curve_text(line: Curve, percent: bool) -> str:
    if not line.seeds:
        return f"{line.label}: no completed trial."
    ends = [statistics.fmean(list(seed.values())[end] for seed in line.seeds) for end in (0, -1)]
    first, last = (f"{value:.1%}" if percent else f"{value:.3g}" for value in ends)
    return f"{line.label}: from {first} to {last}."


def _trial_word(setting: Setting) -> str:
    """The word for one trial: its seed, unless trials of the same seed have several hold-outs."""
    return "seed" if setting.noun == "seed" else "trial"


def _band_note(setting: Setting) -> str:
    """Say what lines and bands are over: every trial, also where several share a hold-out."""
    trial = _trial_word(setting)
    if any(len(method.rows) > 1 for method in setting.methods):
        return f"Lines are means over the {trial}s, bands reach from the lowest to the highest {trial}."
    return f"One {trial} per method."


def _failed_note(setting: Setting) -> str:
    some = any(r.rows and r.seeds not in m.rows for m in setting.methods for r in m.records)
    return " Dotted lines that end in a cross are trials that failed or were stopped." if some else ""


def _mean_if_all(found: Mapping[TrialSeeds, int | None]) -> float | None:
    """The mean, if every seed has reached the target."""
    reached = [n for n in found.values() if n is not None]
    return statistics.fmean(reached) if reached and len(reached) == len(found) else None


def _rounds_text(found: Mapping[TrialSeeds, int | None], trial: str) -> str:
    mean = _mean_if_all(found)
    if mean is not None:
        by_seed = ", ".join(str(n) for n in found.values())
        return f"{mean:.1f}" + (f" ({by_seed})" if len(found) > 1 else "")
    reached = sum(n is not None for n in found.values())
    return EMPTY if not found else f"reached by {reached} of {counted(len(found), trial)}"
