"""What a report says of a setting: its numbers as tables and curves."""

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence

from moonfed.experiments.statistics import LAST, Interval, deviation
from moonfed.report.blocks import Block, Paragraph, Picture, Pictures, Table
from moonfed.report.figures import Gap, Line, colour, curves, differences
from moonfed.report.methods import Method, Seeds, Setting
from moonfed.training.records import RoundRecord

NONE = ""
BAND = "Lines are means over the seeds, bands reach from the lowest to the highest seed."


def slug(text: str) -> str:
    """Make a name that can be that of a file."""
    return re.sub(r"[^A-Za-z0-9.=+]+", "-", text).strip("-.") or "unnamed"


def accuracy_table(setting: Setting, name: str) -> Table:
    """The methods side by side: the mean of the last ten rounds, the last round, the difference to the base."""
    base = setting.base
    rows: list[list[str]] = []
    for method in setting.methods:
        gap = setting.against(method)
        shown = NONE if gap is None else f"{100 * gap.mean:+.1f}"
        ends = NONE
        if gap is not None and gap.low is not None and gap.high is not None:
            ends = f"{100 * gap.low:+.1f} to {100 * gap.high:+.1f}"
            ends += "" if gap.n == len(base.rows) else f" ({gap.n} pairs)"
        seeds = f"{len(method.rows)} of {len(method.records)}"
        if method.partial and method.rows:
            seeds += f", round {method.rounds} of {method.records[0].config.train.rounds}"
        rows.append([method.name, seeds, spread(method.last_ten), spread(method.last), shown, ends])
    window = _window(base)
    columns = ["method", "seeds", f"mean of {window}, %", "last round, %"]
    gaps = [f"against {base.name}, points", "95 % interval"] if len(rows) > 1 else []
    against = f"Differences to {base.name} are those of {window}, paired by seed, with Student's t-interval. "
    return Table(
        name,
        f"{setting.config.data.judged.capitalize()} accuracy by method",
        columns + gaps,
        [row[: len(columns + gaps)] for row in rows],
        1,
        [colour(place) for place in range(len(rows))],
        f"The figure to read is the mean of {window}, as far as they were evaluated; the best round is not shown. "
        "± is the standard deviation over the seeds, with n - 1 in the denominator. "
        + (against if gaps else "")
        + "Seeds: those that the numbers rest on, of all.",
    )


def remarks(setting: Setting) -> list[Block]:
    """What a reader must know before the numbers: trials that failed, broke off, or stand alone."""
    said: list[Block] = []
    for method in setting.methods:
        if method.states:
            said.append(Paragraph(f"{method.name}: {'; '.join(method.states)}.", warns=True))
    alone = [m.name for m in setting.methods if any(r.config.algorithm.name == "solo" for r in m.records)]
    if alone:
        said.append(Paragraph(f"{', '.join(alone)}: the mean over the parties' own models; there is no global model."))
    return said


def curve_pictures(setting: Setting, name: str) -> Pictures:
    """Test accuracy, test loss and training loss by round."""
    drawn: list[Picture] = []
    judged = setting.config.data.judged
    for key, what, percent in (("accuracy", f"{judged} accuracy", True), ("test_loss", f"{judged} loss", False)):
        lines = [_line(method, key) for method in setting.methods]
        alt = f"{what.capitalize()} by round. " + " ".join(_told(line, percent) for line in lines)
        picture = curves(lines, what, percent)
        caption = f"{what.capitalize()} by round. {BAND if _banded(setting) else 'One seed a method.'}"
        drawn.append(Picture(f"{name}-{slug(what)}", picture, alt, caption + _broken(setting)))
    lines = [_line(method, "supervised") for method in setting.methods]
    if any(line.seeds or line.broken for line in lines):
        what = "training loss"
        alt = f"{what.capitalize()} by round. " + " ".join(_told(line, False) for line in lines)
        caption = "Cross-entropy at the parties during their local training, mean over all steps of a round."
        drawn.append(Picture(f"{name}-{slug(what)}", curves(lines, what), alt, caption))
    return Pictures(drawn)


def difference_picture(setting: Setting, name: str) -> Pictures | None:
    """The paired differences with their intervals, where there are any."""
    found = [(method.name, setting.against(method), place) for place, method in enumerate(setting.methods)]
    gaps = [Gap(label, gap, place) for label, gap, place in found if gap is not None]
    if not gaps:
        return None
    base = setting.base.name
    alt = f"Differences to {base} in points: " + ", ".join(f"{gap.label} {points(gap.found)}" for gap in gaps)
    caption = f"Mean of {_window(setting.base)}, difference to {base} paired by seed; lines are 95 % t-intervals."
    if any(gap.found.low is None for gap in gaps):
        caption += " A dot without a line rests on one pair."
    return Pictures([Picture(f"{name}-differences", differences(gaps, base), alt, caption)])


def points(found: Interval) -> str:
    """Show a difference in points of accuracy, with its interval where it has one."""
    if found.low is None or found.high is None:
        return f"{100 * found.mean:+.1f}"
    return f"{100 * found.mean:+.1f} ({100 * found.low:+.1f} to {100 * found.high:+.1f})"


def rounds_table(setting: Setting, name: str, targets: Sequence[float] = ()) -> Table:
    """How many rounds each method needs for what the base has after its last round, and for given accuracies."""
    base = setting.base
    rows: list[list[str]] = []
    own = _whole(setting.crossings(base))
    for method in setting.methods:
        found = setting.crossings(method)
        mean = _whole(found)
        cells = [method.name, _rounds(found)]
        cells.append(NONE if mean is None else f"{base.rounds / mean:.1f} times")
        cells.append(NONE if mean is None or own is None else f"{own / mean:.1f} times")
        size = [value for name in ("bytes_up", "bytes_down") if (value := method.mean(name)) is not None]
        cells.append(NONE if mean is None else f"{mean * sum(size) / 1e6:.1f}")
        rows.append(cells + [_rounds(setting.reached(method, target)) for target in targets])
    return Table(
        name,
        f"Rounds to the accuracy that {base.name} has after its last round",
        [
            "method",
            "rounds",
            f"speed-up over the {base.rounds} rounds of {base.name}",
            f"speed-up over the first time of {base.name}",
            "MB until then",
            *(f"rounds to {100 * target:g} %" for target in targets),
        ],
        rows,
        1,
        [colour(place) for place in range(len(rows))],
        f"The first round at or above the accuracy of {base.name} in its last round, by seed, and the mean over the "
        f"seeds; there is none if a seed never reaches it. {base.name} itself often has that accuracy before its last "
        "round: one column counts from there, the other from its last round, as the papers do.",
    )


def cost_table(setting: Setting, name: str) -> Table:
    """Rounds, bytes and seconds of one trial."""
    rows: list[list[str]] = []
    stacked = 1
    for method in setting.methods:
        up, down = method.mean("bytes_up"), method.mean("bytes_down")
        seconds = method.mean("seconds", per_trial=True)
        n = method.rounds
        stacked = max([stacked, *(row.get("trials_in_stack", 1) for rows in method.rows.values() for row in rows)])
        if up is None or down is None or seconds is None:
            rows.append([method.name, *[NONE] * 6])
            continue
        cells = [str(n), f"{up / 1e6:.2f}", f"{down / 1e6:.2f}", f"{n * (up + down) / 1e6:.1f}"]
        rows.append([method.name, *cells, f"{seconds:.2f}", f"{n * seconds:.0f}"])
    note = "MB are millions of bytes that travel between the server and all parties of a round. "
    if stacked > 1:
        note += (
            f"Up to {stacked} trials were trained as one stack: a trial's seconds are those until its part of a round "
            "was done, divided by the trials of the stack. They tell what a trial of the stack costs, not which "
            "method is dearer."
        )
    unit = "GPU-seconds" if all(r.on_gpu for m in setting.methods for r in m.records) else "seconds"
    return Table(
        name,
        "Cost of one trial",
        ["method", "rounds", "MB up a round", "MB down a round", "MB in all", f"{unit} a round", f"{unit} in all"],
        rows,
        1,
        [colour(place) for place in range(len(rows))],
        note.strip(),
    )


def spread(values: Mapping[Seeds, float]) -> str:
    """Show a mean with its standard deviation, in percent."""
    found = list(values.values())
    if not found:
        return "no trial that counts"
    sd = deviation(found)
    return f"{100 * statistics.fmean(found):.1f}" + ("" if sd is None else f" ± {100 * sd:.1f}")


def _window(method: Method) -> str:
    """Name the rounds whose mean is the primary figure."""
    few = {0: "the last rounds", 1: "the only round"}.get(method.rounds, f"all {method.rounds} rounds")
    return f"the last {LAST} rounds" if method.rounds > LAST else few


def _line(method: Method, key: str) -> Line:
    counted = [_values(rows, key) for rows in method.rows.values()]
    broken = [_values(r.rows, key) for r in method.records if r.seeds not in method.rows]
    return Line(method.name, [v for v in counted if v], [v for v in broken if v])


def _values(rows: Sequence[RoundRecord], key: str) -> dict[int, float]:
    found = ((row["round"], row["losses"].get(key) if key == "supervised" else row[key]) for row in rows)
    return {number: value for number, value in found if value is not None}


def _told(line: Line, percent: bool) -> str:
    if not line.seeds:
        return f"{line.label}: no trial that counts."
    ends = [_share(statistics.fmean(list(seed.values())[end] for seed in line.seeds), percent) for end in (0, -1)]
    return f"{line.label}: from {ends[0]} to {ends[1]}."


def _share(value: float, percent: bool) -> str:
    return f"{value:.1%}" if percent else f"{value:.3g}"


def _banded(setting: Setting) -> bool:
    return any(len(method.rows) > 1 for method in setting.methods)


def _broken(setting: Setting) -> str:
    some = any(r.rows and r.seeds not in m.rows for m in setting.methods for r in m.records)
    return " Dotted lines that end in a cross are trials that failed or broke off." if some else ""


def _whole(found: Mapping[Seeds, int | None]) -> float | None:
    """The mean, if every seed has reached the target."""
    reached = [n for n in found.values() if n is not None]
    return statistics.fmean(reached) if reached and len(reached) == len(found) else None


def _rounds(found: Mapping[Seeds, int | None]) -> str:
    mean = _whole(found)
    if mean is not None:
        by_seed = ", ".join(str(n) for n in found.values())
        return f"{mean:.1f}" + (f" ({by_seed})" if len(found) > 1 else "")
    reached = sum(n is not None for n in found.values())
    return NONE if not found else f"reached by {reached} of {len(found)} seeds"


def joined(items: Iterable[object]) -> str:
    """Join words with commas, each once."""
    return ", ".join(dict.fromkeys(str(item) for item in items))
