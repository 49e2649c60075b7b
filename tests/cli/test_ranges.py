"""A number outside the range of a setting, or none at all, is refused by the setting's name."""

from pathlib import Path
from typing import get_args

import pytest
from commands import refuse

from moonfed.training.config import SECTIONS, flag_of
from moonfed.training.registry import all_settings, setting_flag

# Values outside the range of every numeric setting, written down by hand; a new setting needs a line here.
OUT_OF_RANGE = {
    "parties": ("0", "-3", "1000001"),
    "beta": ("0", "-0.5", "1e+39"),  # of the Dirichlet distribution; those of algorithms may be 0
    "algorithm.beta": ("-0.5", "1e+39"),
    "classes_per_party": ("0", "-1", "11"),
    "floor": ("0", "-1", "1000001"),
    "partition_seed": ("-1", str(2**32)),
    "projection": ("-1", "65537"),
    "rounds": ("0", "-1", "100001"),
    "epochs": ("0", "-1", "10001"),
    "evaluate_every": ("0", "-1", "1000001"),
    "checkpoint_every": ("0", "-1", "1000001"),
    "rows_per_party": ("0", "-1", "1000001"),
    "batch": ("0", "-1", "1000001"),
    "lr": ("0", "-0.1", "1e+39", "1e+308"),
    "lr_decay": ("0", "-0.1", "1.01"),
    "momentum": ("-0.1", "1", "1.5"),
    "weight_decay": ("-1e-9", "1e+39"),
    "max_grad_norm": ("-1e-9", "1e+39"),
    "monitor": ("-0.1", "1", "1.5"),
    "patience": ("-1", "100001"),
    "fraction": ("0", "-0.5", "1.01"),
    "stragglers": ("-0.1", "1.1"),
    "seed": ("-1", str(2**32)),
    "threads": ("-1", "1025"),
    "mu": ("-0.25", "1e+39", "1e+308"),
    "temperature": ("0", "-1", "1e+39"),
    "negatives": ("0", "-1", "1001"),
    "server_momentum": ("-0.1", "1"),
    "trim": ("-0.1", "0.5", "1"),
    "server_lr": ("0", "-1", "1e+39"),
    "server_beta1": ("-0.1", "1"),
    "server_beta2": ("-0.1", "1"),
    "server_tau": ("0", "-1", "1e+39"),
    "eps": ("0", "-1", "1e+39"),
    "discrepancy_weight": ("-0.1", "1e+39"),
    "discrepancy_offset": ("-0.1", "1e+39"),
    "margin": ("-0.1", "1e+39"),
    "alpha": ("-0.1", "1.1"),
    "distillation": ("-0.1", "1e+39"),
    "suppression": ("-0.1", "1e+39"),
    "rho": ("-0.1", "1e+39"),
    "dynamic": ("-0.1", "1e+39"),
    "own_part": ("0", "-0.1", "1.1"),
    "look_ahead": ("-0.1", "1"),
    "head_part": ("-0.1", "1.1"),
    "moon_mu": ("-0.25", "1e+39"),
    "moon_temperature": ("0", "-1", "1e+39"),
    "pull": ("-0.1", "1e+39"),
    "samples": ("0", "-1", "100001"),
    "head_epochs": ("-1", "10001"),
    "head_batch": ("0", "-1", "1000001"),
    "head_lr": ("0", "-0.1", "1e+39"),
    "head_momentum": ("-0.1", "1"),
    "lanes": ("-1", "100001"),
    "slices": ("0", "10001"),
    "validation": ("-0.1", "1"),
    "holdout": ("0", "-0.1", "1"),
    "holdout_seed": ("-1", str(2**32)),
    "seconds": ("0", "-1", "601"),
    "vocabulary": ("0", "-1", "1000001"),
    "length": ("0", "-1", "100001"),
}


def numeric() -> list[tuple[str, list[str], type]]:
    """Walk the settings: the name of each numeric one, the flags that set it and its type.

    The flag of an algorithm's setting carries the algorithm's name where another setting has the plain one.
    """
    settings_with_flags: list[tuple[str, list[str], type]] = []
    for section, settings in SECTIONS.items():
        for name, field in settings.model_fields.items():
            kinds = {field.annotation, *get_args(field.annotation)} | {
                part for kind in get_args(field.annotation) for part in get_args(kind)
            }
            for kind in kinds & {int, float}:
                assert isinstance(kind, type)
                settings_with_flags.append((name, [flag_of(section, name)], kind))
    for name, homes in all_settings().items():
        for algorithm, field in homes:
            if field.type in (int, float):
                flag = setting_flag(algorithm, name)
                key = f"algorithm.{name}" if flag.startswith(f"--{algorithm}.") else name
                settings_with_flags.append((key, ["--algorithm", algorithm, flag], field.type))
    return settings_with_flags


NUMERIC = numeric()
TOO_FAR = [(name, [*flags, value]) for name, flags, _ in NUMERIC for value in OUT_OF_RANGE.get(name, ())]
WORDS = ("nan", "inf", "-inf", "many", "", "1e400", "0x10", "1,5")
NO_NUMBER = [(name, [*flags, value]) for name, flags, _ in NUMERIC for value in WORDS]
NO_WHOLE = [(name, [*flags, "1.5"]) for name, flags, kind in NUMERIC if kind is int]


def test_every_numeric_setting_has_values_that_are_out_of_range() -> None:
    assert set(OUT_OF_RANGE) == {name for name, _, _ in NUMERIC}


@pytest.mark.parametrize(("name", "flags"), TOO_FAR, ids=lambda part: " ".join(part) if isinstance(part, list) else "")
def test_a_value_out_of_range_is_refused_by_name(name: str, flags: list[str], place: Path) -> None:
    line = refuse(place, "run", *flags, *(["--partition", "shards"] if name == "classes_per_party" else []))
    assert name.split(".")[-1] in line or name.replace("_", "-") in line
    assert flags[-1] in line


@pytest.mark.parametrize(("name", "flags"), [*NO_NUMBER, *NO_WHOLE])
def test_what_is_no_number_is_refused_by_name(name: str, flags: list[str], place: Path) -> None:
    assert f".{name.split('.')[-1]} needs" in refuse(place, "run", *flags)
