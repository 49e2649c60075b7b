"""Plans a grid of settings over several seeds, as trials that share stacks."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from moonfed.core.errors import UserError
from moonfed.core.wording import counted
from moonfed.experiments.compare import PlannedTrial, seed_folder, top_folder, with_seeds
from moonfed.training.config import Config, flag_of, make_config
from moonfed.training.user_data import OWN

MAX_TRIALS = 1000
Shared = Mapping[str, set[str] | None]  # settings that cannot vary within a command: some of a section, or all
SHARED: Shared = {"data": {"dataset"}, "run": None, "model": None}
VARIABLE = {
    "sweep": "settings of the algorithm, the split, the training or the cohort",
    "tune": "settings of the algorithm or the training, or --projection",
}


def plan_sweep(
    seeds: str | None, values: dict[str, dict[str, Any]], folder: Path | None, holdout_seeds: str | None = None
) -> tuple[Path, list[PlannedTrial]]:
    """List the trials of a sweep: label, configuration and folder of each, under one folder."""
    repeats = len(with_seeds(values, seeds, holdout_seeds))
    grid = grid_of(values, "sweep", SHARED)
    if not grid:
        raise UserError(
            "sweep needs a setting with several values, for example --mu 0.1,1,5,10; for one setting use moonfed run"
        )
    points, names = list(itertools.product(*(found for _, _, found in grid))), axis_names(grid)
    if len(points) * repeats > MAX_TRIALS:
        pairs = counted(repeats, "seed") if holdout_seeds is None else f"{repeats} pairs of hold-out and seed"
        product = f"{counted(len(points), 'setting')} times {pairs}"
        raise UserError(f"{product} are more than {MAX_TRIALS} trials; reduce either")
    trials: list[tuple[str, Config]] = []
    for point in points:
        chosen = {section: dict(entries) for section, entries in values.items()}
        for (section, name, _), value in zip(grid, point, strict=True):
            chosen[section][name] = value
        label = " ".join(f"{name}={value}" for name, value in zip(names, point, strict=True))
        trials += [(label, make_config(seeded)) for seeded in with_seeds(chosen, seeds, holdout_seeds)]
    refuse_same([config for _, config in trials])
    top = folder or top_folder("sweep", [config for _, config in trials])
    places = [top / label.replace(" ", "_").replace("/", "-") / seed_folder(c, holdout_seeds) for label, c in trials]
    several = holdout_seeds is not None
    return top, [PlannedTrial(*trial, place, several) for trial, place in zip(trials, places, strict=True)]


def axis_names(grid: Sequence[tuple[str, str, Any]]) -> list[str]:
    """Name the settings of a grid in labels: beta, or data.beta where another section's beta varies too."""
    times = Counter(name for _, name, _ in grid)
    return [name if times[name] == 1 else f"{section}.{name}" for section, name, _ in grid]


def refuse_same(configs: Sequence[Config]) -> None:
    """Refuse settings of which two are the same by value."""
    if len({config.identity for config in configs}) < len(configs):
        raise UserError("two of these settings are the same (for example 1 and 1.0); give each value once")


def grid_of(values: dict[str, dict[str, Any]], command: str, all_share: Shared) -> list[tuple[str, str, list[Any]]]:
    """Settings with several values: 0.1,1,5 on the command line, a list in a file."""
    found: list[tuple[str, str, list[Any]]] = []
    for section, entries in values.items():
        for name, value in entries.items() if isinstance(entries, dict) else ():
            if section == "data" and name in OWN:  # a path may hold a comma
                continue
            several = value if isinstance(value, list) else value.split(",") if isinstance(value, str) else [value]
            several = [part.strip() if isinstance(part, str) else part for part in several]
            if len(several) < 2:
                continue
            shared = all_share.get(section, set())
            if shared is None or name in shared:
                raise UserError(
                    f"{flag_of(section, name).split('/')[0]} takes one value in a {command}, got {value}; "
                    f"{command} varies {VARIABLE[command]}"
                )
            if len({str(part) for part in several}) < len(several):
                raise UserError(f"{section}.{name} needs each value once, got {value}")
            found.append((section, name, several))
    return found
