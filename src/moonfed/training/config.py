"""All settings of a trial, checked: command line over file over default."""

import hashlib
import json
from collections.abc import Mapping
from types import NoneType
from typing import Any, cast, get_args

from pydantic import BaseModel, ValidationError

from moonfed.core.errors import UserError, unknown
from moonfed.data import DATASETS
from moonfed.data.partition import PARTITIONS
from moonfed.models import ENCODERS
from moonfed.models.custom import is_custom
from moonfed.training.data_defaults import settle_monitor, with_defaults
from moonfed.training.optimizer_settings import settle_optimizer
from moonfed.training.population_settings import check_population, with_population
from moonfed.training.registry import check_name, check_options, chosen_server, make_algorithm, ordered_parts, preset_of
from moonfed.training.settings import (
    DEFAULT_RAY_SLICES,
    DEFAULT_ROWS_PER_PARTY,
    AlgorithmSettings,
    CohortSettings,
    DataSettings,
    ModelSettings,
    RunSettings,
    Section,
    TrainSettings,
)
from moonfed.training.user_data import OWN, settled


class Config(Section):
    """All settings of one trial."""

    data: DataSettings = DataSettings()  # type: ignore[call-arg]
    model: ModelSettings = ModelSettings()  # type: ignore[call-arg]
    algorithm: AlgorithmSettings = AlgorithmSettings()  # type: ignore[call-arg]
    train: TrainSettings = TrainSettings()  # type: ignore[call-arg]
    cohort: CohortSettings = CohortSettings()  # type: ignore[call-arg]
    run: RunSettings = RunSettings()  # type: ignore[call-arg]

    @property
    def free(self) -> dict[str, set[str]]:
        """What may change when a run is continued.

        A schedule that falls over all rounds needs their number. Early stopping depends on which rounds are evaluated,
        and the last always is. A schedule that is not yet decided changes no name of a folder.
        """
        fixed: set[str] = set() if self.train.lr_schedule in ("constant", None) else {"rounds"}
        fixed |= {"rounds", "evaluate_every"} if self.train.patience else set()
        return {section: names - fixed for section, names in FREE.items()}

    @property
    def identity(self) -> str:
        """A hash of the settings that decide what a run computes; runs of one identity continue each other."""
        values = self.model_dump(mode="json")
        for section, names in self.free.items():
            for name in names:
                del values[section][name]
        for section, names in NEWER.items():
            for name, unchanged in names.items():
                if values[section][name] in (unchanged, None):
                    del values[section][name]
        if self.data.path is None:  # runs on data sets of the catalog keep their identity
            for name in OWN:
                del values["data"][name]
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


SECTIONS: dict[str, type[BaseModel]] = {name: field.annotation for name, field in Config.model_fields.items()}  # type: ignore[misc]

# What may change when a run is continued: how long it runs and how it is carried out, never what it computes. Precision
# and slices are no such things: they are part of what is computed.
FREE = {
    "train": {"rounds"},
    "run": set(RunSettings.model_fields) - {"seed", "precision", "slices"},
}

# Settings that are younger than a run, each with the value that changes nothing: runs without them keep their identity.
NEWER: dict[str, dict[str, Any]] = {
    "data": {"validation": 0.0, "monitor": 0.0, "population": None, "rows_per_party": DEFAULT_ROWS_PER_PARTY},
    "train": {
        **{"max_grad_norm": 0.0, "optimizer": "sgd", "lr_schedule": "constant", "lr_decay": 1.0},
        **{"patience": 0, "calibrate": False},
    },
    "run": {"slices": 1},
}


def make_config(values: Mapping[str, Any]) -> Config:
    """Check nested values and make the settings, or say in one line what is wrong with the first bad one."""
    for section, entries in values.items():
        if section not in SECTIONS:
            raise unknown("section of settings", section, SECTIONS)
        if not isinstance(entries, dict):
            raise UserError(
                f"{section} is a section of settings, got the value {entries!r}; write {section}.NAME = VALUE"
            )
    try:
        config = Config.model_validate(values)
    except ValidationError as error:
        raise _first(error) from None
    data = settled(with_population(config.data))
    train = with_defaults(config.train) if data.path is None else config.train  # of user data, resolve knows more
    config = config.model_copy(update={"data": data, "train": train})
    config = config.model_copy(update={"algorithm": _split_name(config.algorithm)})
    for kind, name, known in (
        ("data set", config.data.dataset, DATASETS if config.data.path is None else {config.data.dataset}),
        ("partition", config.data.partition, {*PARTITIONS, "auto"}),
        ("encoder", config.model.model, {*ENCODERS, "auto"}),
    ):
        if name not in known and not (kind == "encoder" and is_custom(name)):
            raise unknown(kind, name, known)
    check_name(config.algorithm.name)
    server = chosen_server(config.algorithm.name, config.algorithm.server, config.algorithm.options)
    settings = config.algorithm.model_copy(update={"server": server})
    options = check_options(settings.name, settings.server, settings.options)
    preset = preset_of(settings.name, settings.server)
    train = settle_optimizer(config.train, preset)
    data = settle_monitor(config.data, train, preset)
    check_population(data, preset)
    make_algorithm(settings.name, settings.server, options)  # refuses rules that do not fit each other
    algorithm = AlgorithmSettings(name=settings.name, server=settings.server, **options)
    slices = DEFAULT_RAY_SLICES if config.run.engine == "ray" else 1
    run = config.run.model_copy(update={"slices": config.run.slices or slices})
    return config.model_copy(update={"algorithm": algorithm, "train": train, "data": data, "run": run})


def _split_name(algorithm: AlgorithmSettings) -> AlgorithmSettings:
    """Read moon+fednova+adam as moon with fednova+adam at the server, and --server as if it stood behind a plus."""
    name, plus, after = algorithm.name.partition("+")
    if (plus and not all(after.split("+"))) or algorithm.server == "":
        raise UserError(
            f"{name}+ needs a server rule, a term or a phase behind every plus (--server), got nothing; "
            "add one, or omit the plus"
        )
    parts = [part for part in (after, algorithm.server) if part]
    server = ordered_parts("+".join(parts)) if parts else algorithm.server
    return algorithm.model_copy(update={"name": name, "server": server})


def _choices(annotation: Any) -> list[str]:
    """List the words that a setting may have; where it may also be left open, None is not one of them."""
    kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
    return [str(word) for kind in kinds for word in get_args(kind) or (kind,)]


def section_flags() -> set[str]:
    """List the flags of all sections, which a rule's setting must not take."""
    return {
        word for model in SECTIONS.values() for name in model.model_fields for word in flag_in(model, name).split("/")
    }


def flag_of(section: str, name: str) -> str:
    """Name the command-line flag of a setting."""
    return flag_in(SECTIONS[section], name)


def flag_in(model: type[BaseModel], name: str) -> str:
    """Name the command-line flag of a field."""
    extra = model.model_fields[name].json_schema_extra
    flag = cast("dict[str, Any]", extra).get("flag") if isinstance(extra, dict) else None
    return str(flag) if flag else "--" + name.replace("_", "-")


def _first(error: ValidationError) -> UserError:
    first = error.errors()[0]
    place = [str(part) for part in first["loc"] if isinstance(part, str)]
    section, name = place[0], place[1] if len(place) > 1 else ""
    if first["type"] == "extra_forbidden":
        return unknown("setting", name, SECTIONS[section].model_fields, f"in [{section}]")
    got, context = first.get("input"), first.get("ctx", {})
    flag = flag_of(section, name).split("/")[0]
    for key, sign in (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<=")):
        if key in context:
            return UserError(f"{section}.{name} needs a value {sign} {context[key]}, got {got}; set it with {flag}")
    field = SECTIONS[section].model_fields[name]
    if first["type"] == "literal_error":
        return unknown(f"{section}.{name}", str(got), _choices(field.annotation))
    needs = {
        "int_parsing": "a whole number",
        "int_from_float": "a whole number",
        "int_type": "a whole number",
        "float_parsing": "a number",
        "float_type": "a number",
        "finite_number": "a finite number",
        "int_parsing_size": "a smaller number",
        "bool_parsing": "true or false",
        "bool_type": "true or false",
        "string_type": "a word",
        "truth": "another value than true or false",
        "range": "LOW-HIGH with LOW <= HIGH",
    }.get(first["type"], f"another form ({field.description})")
    return UserError(f"{section}.{name} needs {needs}, got {_brief(got)}; set it with {flag}")


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"
