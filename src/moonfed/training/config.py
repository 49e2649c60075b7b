"""Every setting, typed and frozen, in one place: command line over file over default."""

import hashlib
import json
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from moonfed.core.errors import UserError, unknown
from moonfed.data import DATASETS
from moonfed.data.partition import PARTITIONS
from moonfed.models import ENCODERS
from moonfed.models.custom import is_custom
from moonfed.training.data_config import OWN, Count, DataSettings, Positive, Section, settled
from moonfed.training.registry import ALGORITHMS, SERVERS, RuleOptions, check_options


class ModelSettings(Section):
    """The network, the same for every algorithm."""

    model: str = Field(
        "auto",
        description=f"encoder: {', '.join(ENCODERS)}, or your own, FILE.py:NAME; auto: the data set's",
    )
    norm: Literal["auto", "none", "group", "batch"] = Field(
        "auto",
        description="normalisation in the encoder: none, group, batch; auto: batch in a resnet, "
        "group in text and sound, none elsewhere",
    )
    projection: Annotated[int, Field(ge=0, le=65536)] = Field(
        256, description="width of the projection head; 0 leaves the head out"
    )


class AlgorithmSettings(BaseModel):
    """The algorithm by name, its server rule if it is another than its own, and the settings of its rules."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str = Field(
        "moon", description=f"algorithm: {', '.join(ALGORITHMS)}", json_schema_extra={"flag": "--algorithm"}
    )
    server: str | None = Field(
        None, description=f"another server rule: {', '.join(SERVERS)}; default: the algorithm's own"
    )

    @property
    def options(self) -> RuleOptions:
        """The settings of the two rules."""
        return dict(self.model_extra or {})


class TrainSettings(Section):
    """How long and how the parties train."""

    rounds: Annotated[int, Field(ge=1, le=100_000)] = Field(20, description="communication rounds")
    epochs: Annotated[int, Field(ge=1, le=10_000)] = Field(10, description="local epochs a round")
    batch: Count | None = Field(None, description="batch size; default: the data set's (digits 16, others 64)")
    lr: Positive = Field(0.01, description="learning rate of local SGD")
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.9, description="momentum of local SGD; its buffers start anew each round but for solo and centralised"
    )
    weight_decay: Annotated[float, Field(ge=0)] = Field(1e-5, description="weight decay on every parameter")
    max_grad_norm: Annotated[float, Field(ge=0)] = Field(
        0.0, description="clip gradients to this norm before each step; 0: never"
    )


class CohortSettings(Section):
    """Which parties take part in a round, and how much of their work gets done."""

    fraction: Annotated[float, Field(gt=0, le=1)] = Field(1.0, description="share C of the parties in a round")
    sampling: Literal["uniform", "by-rows"] = Field(
        "uniform",
        description="uniform: without replacement, averaged by rows; "
        "by-rows: m draws with replacement, with probability p_k, averaged 1/K",
    )
    stragglers: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="share of the cohort that gets only part of its steps done"
    )
    straggler_work: Annotated[str, Field(pattern=r"^(0?\.\d+|0|1(\.0*)?)-(0?\.\d+|1(\.0*)?)$")] = Field(
        "0.1-0.9", description="range of the share of its steps a straggler gets done"
    )
    stragglers_keep: bool = Field(
        True,
        description="keep what stragglers got done, or drop them",
        json_schema_extra={"flag": "--stragglers-keep/--stragglers-drop"},
    )


class RunSettings(Section):
    """What decides how a run is carried out."""

    seed: Annotated[int, Field(ge=0, lt=2**32)] = Field(0, description="seed of the trial")
    engine: Literal["auto", "sequential", "stacked"] = Field(
        "auto",
        description="sequential: one party after the other; stacked: all at once; auto: stacked, large nets in turn",
    )
    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d{1,2})?)$")] = Field(
        "auto", description="auto, cpu, cuda or cuda:N"
    )
    threads: Annotated[int, Field(ge=0, le=1024)] = Field(0, description="CPU threads; 0: torch's own choice")
    precision: Literal["auto", "fp32", "tf32", "fp16"] = Field(
        "auto",
        description="numeric precision on GPUs: fp32, tf32 or fp16; auto: fp16 for the cnn, else tf32",
    )
    lanes: Annotated[int, Field(ge=0, le=100_000)] = Field(
        0, description="most parties trained at once by the stacked engine; 0: as many as pay and fit"
    )
    compile: bool = Field(
        True,
        description="compile the stacked engine's step on a GPU where the run is long enough to earn it back",
        json_schema_extra={"flag": "--compile/--no-compile"},
    )
    gamma: bool = Field(
        False,
        description="record each party's gamma, the norm of its gradient after over before",
        json_schema_extra={"flag": "--gamma/--no-gamma"},
    )
    evaluate_every: Count = Field(1, description="rounds between two evaluations; the last round is always evaluated")
    evaluate_parties: bool = Field(
        False,
        description="score each party's own model after its local training too",
        json_schema_extra={"flag": "--evaluate-parties/--no-evaluate-parties"},
    )
    tensorboard: bool = Field(
        False,
        description="log to tensorboard/ in the run folder too",
        json_schema_extra={"flag": "--tensorboard/--no-tensorboard"},
    )


class Config(Section):
    """All settings of one trial."""

    data: DataSettings = DataSettings()  # type: ignore[call-arg]
    model: ModelSettings = ModelSettings()  # type: ignore[call-arg]
    algorithm: AlgorithmSettings = AlgorithmSettings()  # type: ignore[call-arg]
    train: TrainSettings = TrainSettings()  # type: ignore[call-arg]
    cohort: CohortSettings = CohortSettings()  # type: ignore[call-arg]
    run: RunSettings = RunSettings()  # type: ignore[call-arg]


SECTIONS: dict[str, type[BaseModel]] = {name: field.annotation for name, field in Config.model_fields.items()}  # type: ignore[misc]

# What may change when a run is continued: how long it runs and how it is carried out, never what it computes. The
# precision is no such thing: it is part of what is computed.
FREE = {
    "train": {"rounds"},
    "run": set(RunSettings.model_fields) - {"seed", "precision"},
}

# Settings that are younger than a run, each with the value that changes nothing: runs without them keep their identity.
NEWER: dict[str, dict[str, Any]] = {"data": {"validation": 0.0}, "train": {"max_grad_norm": 0.0}}


def make_config(values: dict[str, dict[str, Any]]) -> Config:
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
    config = config.model_copy(update={"data": settled(config.data)})
    for kind, name, known in (
        ("data set", config.data.dataset, DATASETS if config.data.path is None else {config.data.dataset}),
        ("partition", config.data.partition, {*PARTITIONS, "auto"}),
        ("encoder", config.model.model, {*ENCODERS, "auto"}),
        ("algorithm", config.algorithm.name, ALGORITHMS),
    ):
        if name not in known and not (kind == "encoder" and is_custom(name)):
            raise unknown(kind, name, known)
    low, high = straggler_range(config)
    if low > high:
        raise UserError(f"straggler-work needs LOW-HIGH with LOW <= HIGH, got {config.cohort.straggler_work}")
    settings = config.algorithm
    options = check_options(settings.name, settings.server, settings.options)
    return config.model_copy(
        update={"algorithm": AlgorithmSettings(name=settings.name, server=settings.server, **options)}
    )


def straggler_range(config: Config) -> tuple[float, float]:
    """Read the range of a straggler's work."""
    low, high = config.cohort.straggler_work.split("-")
    return float(low), float(high)


def identity(config: Config) -> str:
    """Hash the settings that decide what a run computes; runs of one identity continue each other."""
    values = config.model_dump(mode="json")
    for section, names in FREE.items():
        for name in names:
            del values[section][name]
    for section, names in NEWER.items():
        for name, unchanged in names.items():
            if values[section][name] == unchanged:
                del values[section][name]
    if config.data.path is None:  # runs of before there was data of one's own keep their identity
        for name in OWN:
            del values["data"][name]
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def flag_of(section: str, name: str) -> str:
    """Name the command-line flag of a setting."""
    return flag_in(SECTIONS[section], name)


def flag_in(model: type[BaseModel], name: str) -> str:
    """Name the command-line flag of a field."""
    extra = model.model_fields[name].json_schema_extra
    flag = extra.get("flag") if isinstance(extra, dict) else None
    return str(flag) if flag else "--" + name.replace("_", "-")


def _first(error: ValidationError) -> UserError:
    first = error.errors()[0]
    place = [str(part) for part in first["loc"] if isinstance(part, str)]
    section, name = place[0], place[1] if len(place) > 1 else ""
    if first["type"] == "extra_forbidden":
        return unknown(f"setting in [{section}]", name, SECTIONS[section].model_fields)
    got, context = first.get("input"), first.get("ctx", {})
    flag = flag_of(section, name).split("/")[0]
    for key, sign in (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<=")):
        if key in context:
            return UserError(f"{section}.{name} needs a value {sign} {context[key]}, got {got}; set it with {flag}")
    field = SECTIONS[section].model_fields[name]
    if first["type"] == "literal_error":
        return unknown(f"{section}.{name}", str(got), [str(v) for v in get_args(field.annotation)])
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
    }.get(first["type"], f"another form ({field.description})")
    return UserError(f"{section}.{name} needs {needs}, got {_brief(got)}; set it with {flag}")


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"
