"""Settings by keyword, as the command line has them by flag."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal, TypedDict

from moonfed.core.errors import RunFailed, UserError, unknown
from moonfed.training.config import SECTIONS, Config, flag_of, make_config
from moonfed.training.registry import all_settings, setting_flag


class Settings(TypedDict, total=False):
    """What may be set besides: the flags of moonfed run, with the same defaults."""

    partition: str
    beta: float
    classes_per_party: int
    floor: int
    partition_seed: int
    validation: float
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
    momentum: float
    weight_decay: float
    max_grad_norm: float
    fraction: float
    sampling: Literal["uniform", "by-rows"]
    stragglers: float
    straggler_work: str
    stragglers_keep: bool
    engine: Literal["auto", "sequential", "stacked"]
    device: str
    threads: int
    precision: Literal["auto", "fp32", "tf32", "fp16"]
    lanes: int
    compile: bool
    gamma: bool
    evaluate_every: int
    evaluate_parties: bool
    tensorboard: bool


# What fit and compare take by name beside the settings.
ARGUMENTS = ("encoder", "data", "algorithm", "algorithms", "parties", "rounds", "seeds", "out", "callbacks")
ARGUMENTS += ("test", "resume", "progress")
# Settings of the command line that are arguments with another name here.
RENAMED = {"model": "encoder", "dataset": "data", "path": "data", "seed": "seeds", "name": "algorithm"}


def check_keywords(settings: Mapping[str, Any]) -> None:
    """Refuse a keyword that is no setting, and say where it belongs if that is known."""
    owners = {name: [algorithm for algorithm, _ in pairs] for name, pairs in all_settings().items()}
    for name, value in settings.items():
        if name in RENAMED:
            raise UserError(f"no setting {name}; use {RENAMED[name]}={value!r}")
        if name in owners and name not in Settings.__annotations__:
            maker = "moon" if "moon" in owners[name] else owners[name][0].replace("-", "_")
            raise UserError(f"{name} is a setting of the algorithm; use algorithm=moonfed.{maker}({name}={value!r})")
        if name not in Settings.__annotations__:
            raise unknown("setting", name, (*ARGUMENTS, *Settings.__annotations__))


def config_of(algorithm: dict[str, Any], values: Mapping[str, Any]) -> Config:
    """Make the config of a trial from settings by name, whatever section they stand in."""
    homes = {name: section for section, model in SECTIONS.items() for name in model.model_fields}
    nested: dict[str, dict[str, Any]] = {"algorithm": algorithm}
    for name, value in values.items():
        nested.setdefault(homes[name], {})[name] = value
    return make_config(nested)


@contextmanager
def keyword_errors() -> Iterator[None]:
    """Name keywords instead of flags in the errors of a call from Python; also a decorator."""
    try:
        yield
    except (UserError, RunFailed) as error:
        raise type(error)(by_keyword(str(error))) from None


def by_keyword(message: str) -> str:
    """Rewrite a message for readers in Python: lr instead of --lr, encoder instead of --model.

    >>> by_keyword("train.lr needs a value > 0, got -1; set it with --lr")
    'lr needs a value > 0, got -1'
    >>> by_keyword('no run.engine "fast"; known: auto, sequential, stacked')
    'no engine "fast"; known: auto, sequential, stacked'
    >>> by_keyword("party 3 has 7 rows, fewer than a batch of 16; use --batch 7 or smaller, or --floor 16")
    'party 3 has 7 rows, fewer than a batch of 16; use batch 7 or smaller, or floor 16'
    """
    message = re.sub(r"; set it with --[\w.-]+$", "", message)
    place = rf"^(no )?(?:{'|'.join(SECTIONS)})\.(\w+)"  # train.lr needs ..., no run.engine "x"
    message = re.sub(place, lambda found: f"{found[1] or ''}{RENAMED.get(found[2], found[2])}", message)
    return re.sub(r"(?<![\w-])--[a-z][\w.-]*\w", lambda flag: _keywords().get(flag[0], flag[0]), message)


@cache
def _keywords() -> dict[str, str]:
    """List every flag with the keyword that says the same in Python."""
    found = {"--seeds": "seeds", "--out": "out", "--resume": "resume=True"}
    for section, model in SECTIONS.items():
        for name in model.model_fields:
            on, *off = flag_of(section, name).split("/")
            found |= {on: f"{name}=True" if model.model_fields[name].annotation is bool else name}
            found |= dict.fromkeys(off, f"{name}=False")
    found |= {setting_flag(owner, name): name for name, owners in all_settings().items() for owner, _ in owners}
    return found | {"--model": "encoder", "--data": "data", "--dataset": "data", "--algorithm": "algorithm"}
