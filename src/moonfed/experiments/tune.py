"""Choosing settings by rows held out of the parties' training rows, and saying how sure the choice is."""

import itertools
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moonfed.core.errors import RunFailed, UserError
from moonfed.experiments.compare import read_seeds, top_folder
from moonfed.experiments.search import Choice, Plan, Results, Stage, choose, estimate, plan_search, stages
from moonfed.experiments.statistics import LAST
from moonfed.experiments.sweep import Shared, grid_of
from moonfed.storage.run_record import RunRecord
from moonfed.training.config import SECTIONS, Config, flag_of, make_config

Values = dict[str, dict[str, Any]]
SEEDS, BUDGET, HELD_OUT = "0-4", 60, 0.2
SHARED: Shared = {"data": None, "run": None, "cohort": None, "model": {"model", "norm"}}
# What is searched where nothing is said: the candidates of the MOON paper (4.1), and its ablations' temperatures.
SEARCHED: dict[str, Values] = {
    "moon": {
        "algorithm": {"mu": [0.1, 1.0, 5.0, 10.0], "temperature": [0.1, 0.5, 1.0]},
        "model": {"projection": [64, 256]},
    },
    "fedprox": {"algorithm": {"mu": [0.001, 0.01, 0.1, 1.0]}},
}
RunTrials = Callable[[list[tuple[Config, Path | None]]], list[RunRecord]]


@dataclass(frozen=True)
class Setting:
    """One point of the grid: what sets it apart, and all its values but the seed."""

    label: str
    point: dict[tuple[str, str], Any]
    values: Values

    def config(self, seed: int) -> Config:
        """Make the settings of one of its trials."""
        return make_config(self.values | {"run": self.values.get("run", {}) | {"seed": seed}})


@dataclass(frozen=True)
class Search:
    """A search: its settings, what its budget is enough for, and where its trials lie."""

    asked: Values
    settings: list[Setting]
    plan: Plan
    budget: int
    folder: Path

    def place(self, setting: int, seed: int) -> Path:
        """Name the folder of a trial."""
        label = self.settings[setting].label.replace(" ", "_").replace("/", "-")
        return self.folder / label / f"seed-{seed}"


def plan_tune(seeds: str | None, values: Values, budget: int, folder: Path | None) -> Search:
    """Lay a search out: the grid that is asked for or the usual one, within a budget of trials."""
    if values.get("run", {}).get("seed") is not None:
        raise UserError("tune needs several seeds, 0-4 for one; use --seeds instead of --seed")
    if budget < 1:
        raise UserError(f"--budget is a number of trials, at least 1, got {budget}")
    asked = {section: dict(entries) for section, entries in values.items()}
    data = asked.setdefault("data", {})
    if float(make_config({"data": {"validation": data.setdefault("validation", HELD_OUT)}}).data.validation) == 0:
        raise UserError("tune needs rows to judge by; use --validation 0.2 or another share above 0")
    grid = grid_of(asked, "tune", SHARED) or _usual_grid(asked)
    points = itertools.product(*(found for _, _, found in grid))
    settings = [_setting(asked, [(s, n, v) for (s, n, _), v in zip(grid, point, strict=True)]) for point in points]
    configs = [setting.config(0) for setting in settings]
    usual = next((i for i, c in enumerate(configs) if c == _without(asked, grid)), 0)
    plan = plan_search(len(settings), read_seeds(seeds or SEEDS, {}), budget, usual)
    return Search(asked, settings, plan, budget, folder or top_folder("tune", configs))


def _usual_grid(asked: Values) -> list[tuple[str, str, list[Any]]]:
    """Take the usual candidates of an algorithm but for what is already fixed."""
    name = asked.get("algorithm", {}).get("name", SECTIONS["algorithm"].model_fields["name"].default)
    usual = {
        section: {k: v for k, v in entries.items() if k not in asked.get(section, {})}
        for section, entries in SEARCHED.get(name, {}).items()
    }
    grid = grid_of(usual, "tune", SHARED)
    if not grid:
        raise UserError(
            f"tune has nothing to choose for {name}; give a setting several values, --lr 0.003,0.01,0.03 for one"
        )
    return grid


def _setting(asked: Values, point: Sequence[tuple[str, str, Any]]) -> Setting:
    values = {section: dict(entries) for section, entries in asked.items()}
    for section, name, value in point:
        values.setdefault(section, {})[name] = value
    label = " ".join(f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for _, name, value in point)
    return Setting(label, {(section, name): value for section, name, value in point}, values)


def _without(asked: Values, grid: Sequence[tuple[str, str, Any]]) -> Config:
    """Make the settings that a run would have with nothing chosen."""
    chosen = {(section, name) for section, name, _ in grid}
    kept = {s: {n: v for n, v in entries.items() if (s, n) not in chosen} for s, entries in asked.items()}
    return make_config(kept | {"run": kept.get("run", {}) | {"seed": 0}})


def carry_out(search: Search, run_trials: RunTrials, say: Callable[[str], None]) -> Results:
    """Run a search's trials stage by stage; what was run before is read, not run again."""
    results: Results = {setting: {} for setting in search.plan.tried}
    for number, stage in enumerate(stages(search.plan, lambda: results), start=1):
        say(_said_of(stage, number, len(search.plan.widths)))
        for group in _stacks(search, stage):
            outcomes = run_trials([(search.settings[s].config(seed), search.place(s, seed)) for s, seed in group])
            if not all(outcome.finished or outcome.failure for outcome in outcomes):
                raise RunFailed(f"stopped early, saved in {search.folder}; the same command goes on")
            for (setting, seed), outcome in zip(group, outcomes, strict=True):
                results[setting][seed] = None if outcome.failure is not None else accuracy_of(outcome)
    return results


def _said_of(stage: Stage, number: int, of: int) -> str:
    what = "each with every seed" if of == 1 else "the last comparison" if stage.final else "the better half goes on"
    seeds = f"seed {stage.seeds[0]}" if len(stage.seeds) == 1 else f"{len(stage.seeds)} seeds"
    return f"stage {number} of {of}: {len(stage.settings)} settings, {seeds}; {what}"


def _stacks(search: Search, stage: Stage) -> list[list[tuple[int, int]]]:
    """Group a stage's trials by network: those of one network share a stack."""
    groups: dict[Any, list[tuple[int, int]]] = {}
    for setting in stage.settings:
        network = search.settings[setting].config(0).model
        groups.setdefault(network, []).extend((setting, seed) for seed in stage.seeds)
    return list(groups.values())


def accuracy_of(outcome: RunRecord) -> float:
    """Read a trial: the mean held-out accuracy of its last rounds, as many as last_rounds says."""
    values = [row["accuracy"] for row in outcome.rows[-last_rounds(outcome.config.train.rounds) :]]
    values = [value for value in values if value is not None]
    return sum(values) / len(values)


def last_rounds(rounds: int) -> int:
    """Count the rounds a trial is read from: its last quarter, and no more than ten."""
    return min(LAST, max(1, rounds // 4))


def result_of(search: Search, results: Results) -> dict[str, Any]:
    """Put together what a search showed, as plain data."""
    plan, choice = search.plan, choose(search.plan, results)
    if choice is None:
        raise RunFailed(f"every setting ended in numbers that are not finite; try a smaller --lr ({search.folder})")
    rounds = search.settings[0].config(0).train.rounds
    best = search.settings[choice.best]
    return {
        "chosen": {name: value for (_, name), value in best.point.items()},
        "sure": sentence(search, choice),
        "told_apart": choice.told_apart,
        "difference": None
        if choice.other is None or choice.gap is None
        else {"best": best.label, "other": search.settings[choice.other].label} | choice.gap._asdict(),
        "command": next_command(search, best),
        "held_out": best.config(0).data.validation,
        "read": f"mean accuracy on the held-out rows over the last {last_rounds(rounds)} of {rounds} rounds",
        "budget": search.budget,
        "trials": plan.trials,
        "grid": len(search.settings),
        "tried": len(plan.tried),
        "seeds": plan.seeds,
        "picking_seeds": plan.picking,
        "settings": [_described(search, setting, found) for setting, found in results.items()],
        "folder": str(search.folder),
    }


def _described(search: Search, setting: int, found: dict[int, float | None]) -> dict[str, Any]:
    last = set(search.plan.seeds) <= set(found)
    over = estimate(search.plan, found)
    return {
        "setting": search.settings[setting].label,
        "in_last_comparison": last,
        "by_seed": {str(seed): value for seed, value in found.items()},
        "failed": sum(value is None for value in found.values()),
        "accuracy": None if over is None else over._asdict(),
    }


def sentence(search: Search, choice: Choice) -> str:
    """Say how sure the choice is."""
    label, n = search.settings[choice.best].label, len(search.plan.seeds)
    if choice.other is None or choice.gap is None:
        return f"{label} is the only setting that ran to its end"
    other, gap = search.settings[choice.other].label, choice.gap
    points = f"{100 * gap.mean:+.1f} points"
    if gap.low is None or gap.high is None:
        return f"{label} over {other}: {points} with one seed, which says nothing of how sure that is"
    spread = f"{points}, 95 % interval {100 * gap.low:+.1f} to {100 * gap.high:+.1f}, {n} seeds"
    if choice.alike:
        return f"{label} over {other}: {points} with either of two seeds, which says nothing of how sure that is"
    if choice.told_apart:
        return f"{label} is better than {other}, the runner-up: {spread}"
    return f"{label} and {other}, the runner-up, are not told apart: {spread}; either will do"


def next_command(search: Search, best: Setting) -> str:
    """Write the command that trains with the chosen settings on all training rows and looks at the test set once."""
    words = ["moonfed", "run"]
    values = best.values | {"data": {k: v for k, v in best.values["data"].items() if k != "validation"}}
    for section, entries in values.items():
        for name, value in entries.items():
            declared = name in SECTIONS[section].model_fields
            flag = flag_of(section, name) if declared else "--" + name.replace("_", "-")
            yes, _, no = flag.partition("/")
            truth = str(value).lower() in ("true", "1")
            words += [yes if truth else no] if no else [yes, f"{value:g}" if isinstance(value, float) else str(value)]
    return shlex.join(words)
