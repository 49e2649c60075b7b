"""Settings by keyword, as the command line has them by flag."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from inspect import signature
from typing import Any, Literal, TypedDict

from moonfed.core.algorithm import Algorithm
from moonfed.core.errors import RunFailed, UserError, unknown
from moonfed.training.config import SECTIONS, Config, flag_of, make_config
from moonfed.training.registry import ALGORITHMS, SHARED, all_settings
from moonfed.training.rule_options import setting_flag


class Settings(TypedDict, total=False):
    """What may be set besides: the flags of moonfed run, with the same defaults."""

    partition: str
    population: str
    rows_per_party: int
    beta: float
    classes_per_party: int
    floor: int
    partition_seed: int
    validation: float
    monitor: float
    label: str
    party: str
    text: str
    ignore: str
    categories: str
    holdout: float
    holdout_seed: int
    skip_bad_rows: bool
    size: str
    seconds: float
    vocabulary: int
    length: int
    norm: Literal["auto", "none", "group", "batch"]
    projection: int
    epochs: int
    batch: int
    optimizer: Literal["sgd", "adamw"]
    lr: float
    lr_schedule: Literal["constant", "cosine", "linear"]
    lr_decay: float
    momentum: float
    weight_decay: float
    max_grad_norm: float
    patience: int
    calibrate: bool
    fraction: float
    sampling: Literal["uniform", "by-rows"]
    stragglers: float
    straggler_work: str
    stragglers_keep: bool
    engine: Literal["auto", "sequential", "stacked", "ray"]
    slices: int
    device: str
    threads: int
    precision: Literal["auto", "fp32", "tf32", "fp16"]
    lanes: int
    compile: bool
    gamma: bool
    checkpoint_every: int
    evaluate_every: int
    evaluate_parties: bool
    tensorboard: bool


Names = Mapping[str, str]  # settings of the command line to the words that a function has for them
FIT: Names = {"model": "encoder", "dataset": "data", "path": "data", "seed": "seeds", "name": "algorithm"}
READ: Names = {"path": "data", "dataset": "data"}  # predict and load: model names the code of a custom encoder
PARTITION: Names = {"partition": "kind", "partition_seed": "seed"}


def check_keywords(settings: Mapping[str, Any], function: Callable[..., Any], algorithms: Sequence[Algorithm]) -> None:
    """Refuse a keyword that is no setting, and say where it belongs if that is known."""
    arguments = [name for name, p in signature(function).parameters.items() if p.kind is not p.VAR_KEYWORD]
    for name, value in settings.items():
        if name in FIT:
            word = FIT[name] if FIT[name] in arguments else "algorithms"
            raise UserError(f"no setting {name}; use {word}={value!r}")
        if name in Settings.__annotations__:
            continue
        if name == "server" or name in all_settings():
            raise _belongs_to_algorithm(name, value, "algorithms" in arguments, algorithms)
        raise unknown("setting", name, (*arguments, *Settings.__annotations__))


def _belongs_to_algorithm(name: str, value: Any, several: bool, algorithms: Sequence[Algorithm]) -> UserError:
    """Say how a setting of an algorithm is given: to one that was chosen, if it has it, else to one that does."""
    owners = [] if name == "server" else [owner for owner, _ in all_settings()[name]]
    chosen = [
        algorithm.name if algorithm.name in owners else algorithm.name.partition("+")[0] for algorithm in algorithms
    ]
    fitting = [one for one in chosen if not owners or one in owners or name in SHARED]
    maker = (fitting or (["moon"] if "moon" in owners else owners))[0]
    function, _, server = maker.partition("+")
    if not ALGORITHMS[function].local.__module__.startswith("moonfed."):
        return UserError(f"{name} is a setting of the algorithm; set it where {maker} is made")
    with_server = f"server={server!r}, " if server else ""
    call = f"moonfed.{function.replace('-', '_')}({with_server}{name}={value!r})"
    each = "each" if name in SHARED else "one"
    use = f"give it to {each} of them, [{call}, ...]" if several else f"use algorithm={call}"
    if fitting:
        return UserError(f"{name} is a setting of the algorithm; {use}")
    verb = "has" if len(owners) == 1 else "have"
    return UserError(f"{', '.join(chosen)}: no setting {name} ({', '.join(owners)} {verb} it); {use}")


def config_of(algorithm: dict[str, Any], values: Mapping[str, Any]) -> Config:
    """Make the config of a trial from settings by name, whatever section they stand in."""
    homes = {name: section for section, model in SECTIONS.items() for name in model.model_fields}
    nested: dict[str, dict[str, Any]] = {"algorithm": algorithm}
    for name, value in values.items():
        nested.setdefault(homes[name], {})[name] = value
    return make_config(nested)


@contextmanager
def keyword_errors(names: Names = FIT) -> Iterator[None]:
    """Name keywords instead of flags in the errors of a call from Python; also a decorator."""
    try:
        yield
    except (UserError, RunFailed) as error:
        raise type(error)(by_keyword(str(error), names)) from None


def by_keyword(message: str, names: Names = FIT) -> str:
    """Rewrite a message for readers in Python: lr instead of --lr, encoder instead of --model.

    >>> by_keyword("train.lr needs a value > 0, got -1; set it with --lr")
    'lr needs a value > 0, got -1'
    >>> by_keyword('no run.engine "fast"; known: auto, sequential, stacked')
    'no engine "fast"; known: auto, sequential, stacked'
    >>> by_keyword("party 3 has 7 rows, fewer than a batch of 16; use --batch 7 or smaller, or --floor 16")
    'party 3 has 7 rows, fewer than a batch of 16; use batch 7 or smaller, or floor 16'
    >>> by_keyword("use --partition iid for an even split", PARTITION)
    'use kind iid for an even split'
    """
    message = re.sub(r"; set it with --[\w.-]+$", "", message)
    place = rf"^(no )?(?:{'|'.join(SECTIONS)})\.(\w+)"  # train.lr needs ..., no run.engine "x"
    message = re.sub(place, lambda found: f"{found[1] or ''}{names.get(found[2], found[2])}", message)
    message = re.sub(r'^no (\w+) "', lambda found: f'no {names.get(found[1], found[1])} "', message)
    words = _keywords()
    return re.sub(r"(?<![\w-])--[a-z][\w.-]*\w", lambda flag: _word(flag[0], words, names), message)


def _word(flag: str, words: Mapping[str, tuple[str, str]], names: Names) -> str:
    if flag not in words:
        return flag
    name, value = words[flag]
    return names.get(name, name) + value


@cache
def _keywords() -> dict[str, tuple[str, str]]:
    """List every flag with the setting that says the same in Python, and the value that the flag stands for."""
    found = {"--seeds": ("seeds", ""), "--out": ("out", ""), "--resume": ("resume", "=True")}
    for section, model in SECTIONS.items():
        for name in model.model_fields:
            on, *off = flag_of(section, name).split("/")
            found[on] = (name, "=True" if model.model_fields[name].annotation is bool else "")
            found |= dict.fromkeys(off, (name, "=False"))
    return found | {
        setting_flag(owner, name): (name, "") for name, owners in all_settings().items() for owner, _ in owners
    }
