"""Chooses settings by accuracy on held-out training rows, and reports how certain the choice is."""

import itertools
import logging
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moonfed.core.errors import RunFailed, UserError
from moonfed.core.wording import counted, signed
from moonfed.experiments.compare import read_seeds, top_folder
from moonfed.experiments.execute import execute
from moonfed.experiments.search import Choice, Plan, Results, Stage, choose, estimate, plan_search, stages
from moonfed.experiments.sweep import Shared, axis_names, grid_of, refuse_same
from moonfed.training.accuracy import accuracy, rounds_averaged
from moonfed.training.callbacks import Callback
from moonfed.training.config import SECTIONS, Config, flag_of, make_config
from moonfed.training.rule_options import setting_flag
from moonfed.training.setup import set_up

logger = logging.getLogger(__name__)

Values = dict[str, dict[str, Any]]
DEFAULT_SEEDS, VALIDATION_SHARE = "0-4", 0.2
SHARED: Shared = {"data": None, "run": None, "cohort": None, "model": {"model", "norm"}}
# The default grids: the candidates of the MOON paper (4.1), and the temperatures of its ablations.
DEFAULT_GRIDS: dict[str, Values] = {
    "moon": {
        "algorithm": {"mu": [0.1, 1.0, 5.0, 10.0], "temperature": [0.1, 0.5, 1.0]},
        "model": {"projection": [64, 256]},
    },
    "fedprox": {"algorithm": {"mu": [0.001, 0.01, 0.1, 1.0]}},
}


@dataclass(frozen=True)
class Setting:
    """One point of the grid: its label, its values on the grid, and all its values except the seed."""

    label: str
    point: dict[tuple[str, str], Any]
    values: Values

    def config(self, seed: int) -> Config:
        """Configuration of one of its trials."""
        return make_config(self.values | {"run": self.values.get("run", {}) | {"seed": seed}})


@dataclass(frozen=True)
class Search:
    """A search: its settings, its plan, its budget and its folder."""

    values: Values
    settings: list[Setting]
    plan: Plan
    budget: int
    folder: Path

    def trial_folder(self, setting: int, seed: int) -> Path:
        """Folder of a trial."""
        label = self.settings[setting].label.replace(" ", "_").replace("/", "-")
        return self.folder / label / f"seed-{seed}"


def plan_tune(seeds: str | None, values: Values, budget: int, folder: Path | None) -> Search:
    """Plan a search over the given grid, or the default one, within a budget of trials."""
    if values.get("run", {}).get("seed") is not None:
        raise UserError("tune needs several seeds; use --seeds, for example --seeds 0-4, instead of --seed")
    if budget < 1:
        raise UserError(f"--budget needs a number of trials, at least 1, got {budget}")
    asked = {section: dict(entries) for section, entries in values.items()}
    data = asked.setdefault("data", {})
    if (
        float(make_config({"data": {"validation": data.setdefault("validation", VALIDATION_SHARE)}}).data.validation)
        == 0
    ):
        raise UserError("tune needs held-out rows; use --validation 0.2 or another share above 0")
    grid = grid_of(asked, "tune", SHARED) or _default_grid(asked)
    points = itertools.product(*(found for _, _, found in grid))
    names = axis_names(grid)
    settings = [
        _setting(asked, names, [(s, n, v) for (s, n, _), v in zip(grid, point, strict=True)]) for point in points
    ]
    configs = [setting.config(0) for setting in settings]
    refuse_same(configs)
    default = next((i for i, c in enumerate(configs) if c == _without(asked, grid)), 0)
    if len({config.identity for config in configs}) < len(configs):
        raise UserError("two of these settings are the same (for example 1 and 1.0); give each value once")
    plan = plan_search(len(settings), read_seeds(seeds or DEFAULT_SEEDS, {}), budget, default)
    return Search(asked, settings, plan, budget, folder or top_folder("tune", configs))


def _default_grid(asked: Values) -> list[tuple[str, str, list[Any]]]:
    """The default candidates of an algorithm, without the settings that are already fixed."""
    name = asked.get("algorithm", {}).get("name", SECTIONS["algorithm"].model_fields["name"].default)
    defaults = DEFAULT_GRIDS.get(name, {})
    main = next(iter(defaults.get("algorithm", {})), None)
    if main in asked.get("algorithm", {}):
        several = ",".join(f"{value:g}" for value in defaults["algorithm"][main])
        raise UserError(
            f"tune has nothing to choose: {main} has one value, {asked['algorithm'][main]}; give several, for example "
            f"{setting_flag(name, main)} {several}, or several values of another setting"
        )
    candidates = {
        section: {k: v for k, v in entries.items() if k not in asked.get(section, {})}
        for section, entries in defaults.items()
    }
    grid = grid_of(candidates, "tune", SHARED)
    if not grid:
        raise UserError(
            f"tune has no default grid for {name}; give a setting several values, for example --lr 0.003,0.01,0.03"
        )
    return grid


def _setting(asked: Values, names: Sequence[str], point: Sequence[tuple[str, str, Any]]) -> Setting:
    values = {section: dict(entries) for section, entries in asked.items()}
    for section, name, value in point:
        values.setdefault(section, {})[name] = value
    pairs = zip(names, point, strict=True)
    label = " ".join(
        f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, (*_, value) in pairs
    )
    return Setting(label, {(section, name): value for section, name, value in point}, values)


def _without(asked: Values, grid: Sequence[tuple[str, str, Any]]) -> Config:
    """Configuration without any value of the grid: the default."""
    chosen = {(section, name) for section, name, _ in grid}
    kept = {s: {n: v for n, v in entries.items() if (s, n) not in chosen} for s, entries in asked.items()}
    return make_config(kept | {"run": kept.get("run", {}) | {"seed": 0}})


def run_search(search: Search, callbacks: Sequence[Callback] = ()) -> Results:
    """Run a search's trials stage by stage; finished trials are read instead of run again."""
    results: Results = {setting: {} for setting in search.plan.settings}
    for number, stage in enumerate(stages(search.plan, lambda: results), start=1):
        logger.info(_describe_stage(stage, number, len(search.plan.stage_sizes)))
        for group in _stacks(search, stage):
            configs = [search.settings[s].config(seed) for s, seed in group]
            places = [search.trial_folder(s, seed) for s, seed in group]
            labels = [f"{configs[0].algorithm.name} {search.settings[s].label}" for s, _ in group]
            outcomes = [record for _, record in execute(*set_up(configs, labels), places, True, callbacks)]
            if not all(outcome.finished or outcome.failure for outcome in outcomes):
                raise RunFailed(f"stopped early, saved in {search.folder}; run the same command to continue")
            for (setting, seed), outcome in zip(group, outcomes, strict=True):
                results[setting][seed] = None if outcome.failure is not None else accuracy(outcome.rows)
    return results


def _describe_stage(stage: Stage, number: int, of: int) -> str:
    what = "each with every seed" if of == 1 else "final comparison" if stage.final else "the better half continues"
    seeds = f"seed {stage.seeds[0]}" if len(stage.seeds) == 1 else counted(len(stage.seeds), "seed")
    return f"stage {number} of {of}: {counted(len(stage.settings), 'setting')}, {seeds}; {what}"


def _stacks(search: Search, stage: Stage) -> list[list[tuple[int, int]]]:
    """Group a stage's trials by network; those of one network share a stack."""
    groups: dict[Any, list[tuple[int, int]]] = {}
    for setting in stage.settings:
        network = search.settings[setting].config(0).model
        groups.setdefault(network, []).extend((setting, seed) for seed in stage.seeds)
    return list(groups.values())


def result_of(search: Search, results: Results) -> dict[str, Any]:
    """Collect the result of a search as plain data."""
    plan, choice = search.plan, choose(search.plan, results)
    if choice is None:
        raise RunFailed(f"every setting ended in numbers that are not finite; try a smaller --lr ({search.folder})")
    best = search.settings[choice.best]
    config = best.config(0)
    return {
        "best": best.label,
        "chosen": {name: value for (_, name), value in best.point.items()},
        "conclusion": conclusion(search, choice),
        "distinguishable": choice.distinguishable,
        "difference": None
        if choice.runner_up is None or choice.difference is None
        else {"best": best.label, "runner_up": search.settings[choice.runner_up].label} | choice.difference._asdict(),
        "command": next_command(search, best),
        "validation": config.data.validation,
        "measure": _measure(config),
        "budget": search.budget,
        "trials": plan.trials,
        "grid": len(search.settings),
        "tried": len(plan.settings),
        "seeds": plan.seeds,
        "selection_seeds": plan.selection_seeds,
        "settings": [_describe_setting(search, setting, found) for setting, found in results.items()],
        "folder": str(search.folder),
    }


def _measure(config: Config) -> str:
    """Describe the accuracy that settings are ranked by."""
    if config.train.patience:
        return "accuracy on the held-out rows of the model that early stopping keeps"
    evaluated = -(-config.train.rounds // config.run.evaluate_every)  # the last round is always evaluated
    averaged = rounds_averaged(evaluated)
    window = "the last round" if averaged == 1 else f"the last {averaged} of {evaluated} evaluated rounds"
    return f"mean accuracy on the held-out rows over {window}"


def _describe_setting(search: Search, setting: int, found: dict[int, float | None]) -> dict[str, Any]:
    over = estimate(search.plan, found)
    return {
        "setting": search.settings[setting].label,
        "in_final_comparison": set(search.plan.seeds) <= set(found),
        "by_seed": {str(seed): value for seed, value in found.items()},
        "failed": sum(value is None for value in found.values()),
        "accuracy": None if over is None else over._asdict(),
    }


def conclusion(search: Search, choice: Choice) -> str:
    """State how certain the choice is."""
    best, n = search.settings[choice.best].label, len(search.plan.seeds)
    gap = choice.difference
    if choice.runner_up is None or gap is None:
        return f"{best} is the only setting that completed"
    second = search.settings[choice.runner_up].label
    if gap.low == gap.high == 0 or (gap.low is None and gap.mean == 0):
        return f"{best} and {second} tie exactly, with {counted(n, 'seed')}; {best} comes first in the grid"
    points = f"{signed(100 * gap.mean)} points"
    if gap.low is None or gap.high is None:
        return f"{best} over {second}: {points} with one seed, which gives no measure of certainty"
    if choice.degenerate:
        return f"{best} over {second}: {points} with either of two seeds, which gives no measure of certainty"
    spread = f"{points}, 95 % interval {signed(100 * gap.low)} to {signed(100 * gap.high)}, {counted(n, 'seed')}"
    if choice.distinguishable:
        return f"{best} is better than {second}, the runner-up: {spread}"
    return f"{best} and {second}, the runner-up, are statistically indistinguishable: {spread}; either will do"


def next_command(search: Search, best: Setting) -> str:
    """Command that trains with the chosen settings on all training rows and evaluates on the test set."""
    words = ["moonfed", "run"]
    values = best.values | {"data": {k: v for k, v in best.values["data"].items() if k != "validation"}}
    algorithm = best.config(0).algorithm.name
    for section, entries in values.items():
        for name, value in entries.items():
            declared = name in SECTIONS[section].model_fields
            flag = flag_of(section, name) if declared else setting_flag(algorithm, name)
            yes, _, no = flag.partition("/")
            truth = str(value).lower() in ("true", "1")
            words += [yes if truth else no] if no else [yes, f"{value:g}" if isinstance(value, float) else str(value)]
    return shlex.join(words)
