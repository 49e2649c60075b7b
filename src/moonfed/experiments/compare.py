"""Plans several methods over several seeds, as trials of one stack."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from moonfed.core.errors import UserError, unknown
from moonfed.training.config import Config, make_config
from moonfed.training.registry import SHARED, make_algorithm
from moonfed.training.settings import AlgorithmSettings

DEFAULT_SEEDS = "0,1,2"
MAX_SEEDS, MAX_DIGITS = 10_000, 10
Values = dict[str, dict[str, Any]]


class PlannedTrial(NamedTuple):
    """A trial of a plan: its method or setting as the user wrote it, its configuration and its folder."""

    name: str
    config: Config
    folder: Path
    needs_holdout: bool = False  # whether --holdout-seeds was used, which data with test rows of its own refuses


class CompareOptions(NamedTuple):
    """The methods of a comparison, its seeds as the user wrote them, and its baseline."""

    methods: list[str]
    seeds: str | None = None
    baseline: str | None = None  # default: fedavg if it is there, else the first method
    holdout_seeds: str | None = None  # default: one hold-out


def compare_options(
    methods: Sequence[str], seeds: str | None, table: dict[str, Any], holdout_seeds: str | None = None
) -> CompareOptions:
    """Merge the command line with the [compare] table of a config file; the command line wins."""
    for name in table:
        if name not in CompareOptions._fields:
            raise unknown("setting", name, CompareOptions._fields, "in [compare]")
    chosen = list(methods) or table.get("methods", [])
    if not (isinstance(chosen, list) and chosen and all(isinstance(method, str) for method in chosen)):
        raise UserError(
            'compare needs methods: moonfed compare moon fedavg, or methods = ["moon", "fedavg"] in the table '
            "[compare] of a --config file"
        )
    baseline = table.get("baseline")
    if baseline is not None and baseline not in chosen:
        methods_text = " ".join(chosen)
        raise UserError(
            f"the baseline must be one of the methods {methods_text}, got {baseline}; use --set compare.baseline=METHOD"
        )
    seeds = seeds if seeds is not None else _seed_text(table.get("seeds"))
    holdout_seeds = holdout_seeds if holdout_seeds is not None else _seed_text(table.get("holdout_seeds"))
    return CompareOptions(chosen, seeds, baseline, holdout_seeds)


def _seed_text(seeds: Any) -> str | None:
    """Seeds of a config file as they would be typed: "0-4", 0 or [0, 1, 2]."""
    if isinstance(seeds, list):
        return ",".join(map(str, seeds))
    return None if seeds is None else str(seeds)


def plan_comparison(
    methods: list[str], seeds: str | None, values: Values, folder: Path | None, holdout_seeds: str | None = None
) -> tuple[Path, list[PlannedTrial]]:
    """List the trials of a comparison: method, configuration and folder of each, under one folder."""
    seeded = with_seeds(values, seeds, holdout_seeds)
    shared = values.get("algorithm", {})
    if own := [name for name in shared if name not in SHARED]:
        named = ", ".join(f"algorithm.{name}" for name in own)
        raise UserError(
            f"compare takes algorithm settings within its methods, for example moon:mu=5; {named} cannot be set for all"
        )
    if len(set(methods)) < len(methods):
        raise UserError(f"give each method once, got {' '.join(methods)}")
    _refuse_equal(methods, shared)
    trials: list[tuple[str, Config]] = []
    for method in methods:
        algorithm = shared | parse_method(method)
        trials += [(method, make_config(chosen | {"algorithm": algorithm})) for chosen in seeded]
    top = folder or top_folder("compare", [config for _, config in trials])
    places = [top / _slug(method) / seed_folder(config, holdout_seeds) for method, config in trials]
    several = holdout_seeds is not None
    return top, [PlannedTrial(*trial, place, several) for trial, place in zip(trials, places, strict=True)]


def _refuse_equal(methods: Sequence[str], shared: dict[str, Any]) -> None:
    """Refuse two methods that are the same by value, for example moon:mu=1 and moon:mu=1.0."""
    seen: dict[str, str] = {}
    for method in methods:
        settings = _algorithm_settings(method, shared)
        value = repr(make_algorithm(settings.name, settings.server, settings.options).rules)
        if value in seen:
            raise UserError(f"{seen[value]} and {method} are the same method; give each method once")
        seen[value] = method


def _algorithm_settings(method: str, shared: dict[str, Any]) -> AlgorithmSettings:
    """Check a method's settings; an error says how they are written in a method, which has no flags."""
    try:
        return make_config({"algorithm": shared | parse_method(method)}).algorithm
    except UserError as error:
        name = method.partition(":")[0]
        setting = re.match(r"[\w+-]+\.(\w+) needs", str(error))
        plain = re.sub(r"; set it with --[\w.-]+$", "", str(error))
        raise UserError(f"{plain}; write it as {name}:{setting[1]}=VALUE" if setting else plain) from None


def read_seeds(seeds: str | None, values: Values) -> list[int]:
    """Seeds of several trials: those of --seeds, or the one of --seed, or three."""
    single = values.get("run", {}).get("seed")
    if seeds is not None and single is not None:
        raise UserError(f"got both seed {single} and seeds {seeds}; use --seeds alone")
    return seed_list(seeds if seeds is not None else DEFAULT_SEEDS if single is None else str(single))


def with_seeds(values: Values, seeds: str | None, holdout_seeds: str | None) -> list[Values]:
    """Return the values of a method's trials: one for each hold-out and seed."""
    numbers = read_seeds(seeds, values)
    data, run = values.get("data", {}), values.get("run", {})
    if holdout_seeds is None:
        return [values | {"run": run | {"seed": seed}} for seed in numbers]
    if data.get("path") is None:
        raise UserError(
            "--holdout-seeds draws test rows from your own data, data sets have fixed ones; use --data PATH"
        )
    if data.get("test") is not None:
        raise UserError(
            f"--holdout-seeds draws test rows at random, --test {data['test']} names them; omit one of the two"
        )
    if data.get("holdout_seed") is not None:
        raise UserError(
            f"got both holdout seed {data['holdout_seed']} and holdout seeds {holdout_seeds}; use --holdout-seeds alone"
        )
    holdouts = seed_list(holdout_seeds, "--holdout-seeds")
    return [
        values | {"data": data | {"holdout_seed": holdout}, "run": run | {"seed": seed}}
        for holdout in holdouts
        for seed in numbers
    ]


def seed_folder(config: Config, holdout_seeds: str | None) -> Path:
    """Name the folder of a trial below that of its method."""
    seed = Path(f"seed-{config.run.seed}")
    return seed if holdout_seeds is None else f"holdout-{config.data.holdout_seed}" / seed


def top_folder(command: str, configs: Sequence[Config]) -> Path:
    """Folder of several trials, named by their settings, so that the same command finds it again."""
    key = hashlib.sha256(" ".join(sorted(config.identity for config in configs)).encode()).hexdigest()[:6]
    return Path("runs") / f"{command}-{configs[0].data.dataset}-{key}"


def parse_method(text: str) -> dict[str, Any]:
    """Parse NAME[+SERVER][:SETTING=VALUE,...], for example moon:mu=5 or moon+fedavgm:server_momentum=0.9."""
    pair, _, options = text.partition(":")
    name, plus, server = pair.partition("+")
    settings: dict[str, Any] = {"name": name} | ({"server": server} if plus else {})
    for option in options.split(",") if options else []:
        key, equals, value = option.partition("=")
        if not (key and equals and value):
            raise UserError(f"a method is NAME[+SERVER][:SETTING=VALUE,...], for example moon:mu=5, got {text!r}")
        settings[key.strip().replace("-", "_")] = value.strip()
    return settings


def seed_list(text: str, flag: str = "--seeds") -> list[int]:
    """Parse seeds as a user types them: 0,1,2 or 0-4."""
    seeds: list[int] = []
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        ends = [low, high] if dash else [low, low]
        if not all(end.isdecimal() and len(end) <= MAX_DIGITS for end in ends):
            raise UserError(f"{flag} needs whole numbers below 2**32, 0,1,2 or 0-4, got {text[:60]!r}")
        first, last = map(int, ends)
        if not first <= last < first + MAX_SEEDS:
            raise UserError(f"{flag} needs LOW-HIGH with LOW <= HIGH and at most {MAX_SEEDS} seeds, got {part!r}")
        seeds += range(first, last + 1)
    if len(set(seeds)) < len(seeds):
        raise UserError(f"{flag} needs each seed once, got {text!r}")
    return seeds


def _slug(method: str) -> str:
    return method.replace(":", "-").replace(",", "-").replace("/", "-")
