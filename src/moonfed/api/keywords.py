"""Settings by keyword, as the command line has them by flag."""

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from moonfed.core.errors import unknown
from moonfed.training.config import SECTIONS, Config, make_config


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
    lr: float
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


def config_of(algorithm: dict[str, Any], values: Mapping[str, Any]) -> Config:
    """Make the config of a trial from settings by name, whatever section they stand in."""
    homes = {name: section for section, model in SECTIONS.items() for name in model.model_fields}
    nested: dict[str, dict[str, Any]] = {"algorithm": algorithm}
    for name, value in values.items():
        if name not in homes or homes[name] == "algorithm":
            raise unknown("setting", name, Settings.__annotations__)
        nested.setdefault(homes[name], {})[name] = value
    return make_config(nested)
