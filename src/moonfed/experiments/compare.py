"""Several methods over several seeds, as trials of one stack."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from moonfed.core.errors import UserError
from moonfed.training.config import Config, identity, make_config

SEEDS = "0,1,2"
MOST_SEEDS, DIGITS = 10_000, 10


def plan_comparison(
    methods: list[str], seeds: str | None, values: dict[str, dict[str, Any]], folder: Path | None
) -> tuple[Path, list[tuple[str, Config, Path]]]:
    """List the trials of a comparison: method, settings and folder of each, under one folder."""
    numbers = read_seeds(seeds, values)
    if values.get("algorithm"):
        named = ", ".join(f"algorithm.{name}" for name in values["algorithm"])
        raise UserError(
            f"compare takes its algorithms as METHOD arguments, moon:mu=5 for one, got {named} as a setting"
        )
    if len(set(methods)) < len(methods):
        raise UserError(f"each method once, please: {' '.join(methods)}")
    trials: list[tuple[str, Config]] = []
    for method in methods:
        for seed in numbers:
            run = values.get("run", {}) | {"seed": seed}
            trials.append((method, make_config(values | {"algorithm": parse_method(method), "run": run})))
    top = folder or top_folder("compare", [config for _, config in trials])
    return top, [(m, c, top / _slug(m) / f"seed-{c.run.seed}") for m, c in trials]


def read_seeds(seeds: str | None, values: dict[str, dict[str, Any]]) -> list[int]:
    """Read the seeds of several trials: those of --seeds, or the one of --seed, or three."""
    alone = values.get("run", {}).get("seed")
    if seeds is not None and alone is not None:
        raise UserError(f"--seed {alone} and --seeds {seeds} say the same thing twice; use one of them")
    return seed_list(seeds if seeds is not None else SEEDS if alone is None else str(alone))


def top_folder(command: str, configs: Sequence[Config]) -> Path:
    """Name the folder of several trials by what they are, so that the same command finds it again."""
    key = hashlib.sha256(" ".join(sorted(identity(config) for config in configs)).encode()).hexdigest()[:6]
    return Path("runs") / f"{command}-{configs[0].data.dataset}-{key}"


def parse_method(text: str) -> dict[str, Any]:
    """Read NAME[+SERVER][:SETTING=VALUE,...]: moon:mu=5, moon+fedavgm:server_momentum=0.9."""
    pair, _, options = text.partition(":")
    name, plus, server = pair.partition("+")
    settings: dict[str, Any] = {"name": name} | ({"server": server} if plus else {})
    for option in options.split(",") if options else []:
        key, equals, value = option.partition("=")
        if not (key and equals and value):
            raise UserError(f"a method is NAME[+SERVER][:SETTING=VALUE,...], moon:mu=5 for one, got {text!r}")
        settings[key.strip().replace("-", "_")] = value.strip()
    return settings


def seed_list(text: str, flag: str = "--seeds") -> list[int]:
    """Read seeds as a user types them: 0,1,2 or 0-4."""
    found: list[int] = []
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        ends = [low, high] if dash else [low, low]
        if not all(end.isdecimal() and len(end) <= DIGITS for end in ends):
            raise UserError(f"{flag} needs whole numbers below 2**32, 0,1,2 or 0-4, got {text[:60]!r}")
        first, last = map(int, ends)
        if not first <= last < first + MOST_SEEDS:
            raise UserError(f"{flag} needs LOW-HIGH with LOW <= HIGH and at most {MOST_SEEDS} seeds, got {part!r}")
        found += range(first, last + 1)
    if len(set(found)) < len(found):
        raise UserError(f"{flag} needs each seed once, got {text!r}")
    return found


def _slug(method: str) -> str:
    return method.replace(":", "-").replace(",", "-").replace("/", "-")
