"""The settings, section by section: each with its default, its help and its range, declared once."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from moonfed.core.types import MAX_NUMBER
from moonfed.data import DATASETS
from moonfed.data.partition import PARTITIONS
from moonfed.engines.devices import DEVICE_HELP, DEVICE_PATTERN
from moonfed.models import ENCODERS
from moonfed.training.registry import ALGORITHMS, GENERAL_SERVERS, PHASES, TERMS, RuleOptions


class Section(BaseModel):
    """A group of settings that is checked once, when it is made."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())

    @field_validator("*", mode="before")
    @classmethod
    def _truth_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, bool) and cls.model_fields[info.field_name or ""].annotation is not bool:
            raise PydanticCustomError("truth", "not a number")
        return value


Count = Annotated[int, Field(ge=1, le=1_000_000)]
Positive = Annotated[float, Field(gt=0, le=MAX_NUMBER)]
NonNegative = Annotated[float, Field(ge=0, le=MAX_NUMBER)]
DEFAULT_MONITOR = 0.1
DEFAULT_ROWS_PER_PARTY = 64
DEFAULT_RAY_SLICES = 2
DEFAULT_EPOCHS, DEFAULT_WEIGHT_DECAY, DEFAULT_LR_SCHEDULE = 10, 1e-5, "constant"  # but of a user's table: data_defaults


class DataSettings(Section):
    """Which rows there are, and which party holds them."""

    dataset: str = Field("digits", description=f"data set: {', '.join(DATASETS)}")
    partition: str = Field(
        "auto",
        description=f"how rows are split: {', '.join(PARTITIONS)}; auto: natural if the data names its parties, else "
        "dirichlet; feature-skew: parties differ in their inputs instead of their classes",
    )
    parties: Count = Field(10, description="number of parties")
    population: Annotated[str, Field(pattern=r"^virtual:[1-9]\d{0,6}$")] | None = Field(
        None,
        description="virtual:N: N parties that draw their rows from the data with replacement (partition dirichlet or "
        "iid); use a small fraction (default: every row is one party's)",
    )
    rows_per_party: Count = Field(DEFAULT_ROWS_PER_PARTY, description="rows of each party of a virtual population")
    beta: Annotated[float, Field(le=MAX_NUMBER)] = Field(
        0.5, description="concentration of the Dirichlet distribution; smaller is more skewed"
    )
    classes_per_party: Count = Field(2, description="classes a party holds (partition shards)")
    floor: Count = Field(10, description="minimum number of rows per party; a split below it is redrawn")
    partition_seed: Annotated[int, Field(ge=0, lt=2**32)] | None = Field(
        None, description="seed of the split (default: the seed)"
    )
    validation: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="fraction of each party's training rows to evaluate on instead of the test rows"
    )
    monitor: Annotated[float, Field(ge=0, lt=1)] | None = Field(
        None,
        description="fraction of each party's training rows set aside for early stopping and calibration (default: "
        f"{DEFAULT_MONITOR:g} with --patience or --calibrate, else 0)",
    )
    path: str | None = Field(
        None,
        description="your own data: a .csv, .tsv, .parquet or .npz file, a folder of images or .wav files by class, "
        "a Hugging Face data set on disk; default: the data set",
        json_schema_extra={"flag": "--data"},
    )
    label: str | None = Field(None, description="column with the class (default: label in a table, y in an .npz file)")
    party: str | None = Field(
        None,
        description="column that names the party of a row (site, speaker); folder: PARTY/CLASS folders; default: none",
    )
    text: str | None = Field(
        None, description="column to read as text, instead of the other columns as numbers (default: none)"
    )
    ignore: str | None = Field(None, description="columns to ignore, separated by commas (default: none)")
    categories: str | None = Field(
        None, description="numeric columns to treat as categorical, separated by commas (default: none)"
    )
    test: str | None = Field(None, description="file or folder with the test rows (default: rows are held out)")
    holdout: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.2, description="fraction of each party's rows held out for testing"
    )
    holdout_seed: Annotated[int, Field(ge=0, lt=2**32)] = Field(
        0, description="seed of the hold-out, the same for all trials"
    )
    skip_bad_rows: bool = Field(
        False,
        description="skip rows that cannot be used, and list them",
        json_schema_extra={"flag": "--skip-bad-rows/--no-skip-bad-rows"},
    )
    size: Annotated[str, Field(pattern=r"^[1-9]\d{0,3}(x[1-9]\d{0,3})?$")] | None = Field(
        None, description="image size in pixels, 32 or HEIGHTxWIDTH (default: the most frequent, at most 64)"
    )
    seconds: Annotated[float, Field(gt=0, le=600)] | None = Field(
        None, description="clip length in seconds (default: the 90th percentile)"
    )
    vocabulary: Count = Field(10_000, description="vocabulary size")
    length: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        None, description="words read of each text (default: the 99th percentile, at most 256)"
    )

    @property
    def judged(self) -> str:
        """The word for the rows that models are judged on: test rows, or held-out rows of the parties' own."""
        return "held-out" if self.validation else "test"

    @property
    def judged_on(self) -> str:
        """The same in a sentence."""
        return "rows held out of training" if self.validation else "the test rows"


class ModelSettings(Section):
    """The network, the same for every algorithm."""

    model: str = Field(
        "auto",
        description=f"encoder: {', '.join(ENCODERS)}, or FILE.py:NAME; auto: the data set's",
    )
    norm: Literal["auto", "none", "group", "batch"] = Field(
        "auto",
        description="normalisation: none, group, batch; auto: batch in a resnet, "
        "group in text and sound, none elsewhere",
    )
    projection: Annotated[int, Field(ge=0, le=65536)] = Field(
        256, description="width of the projection head; 0: no head"
    )


class AlgorithmSettings(BaseModel):
    """The algorithm by name, its server rule if it is another than its own, and the settings of its rules."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str = Field(
        "moon",
        description=f"algorithm: {', '.join(ALGORITHMS)}; a plus combines it as --server does (moon+fednova+adam)",
        json_schema_extra={"flag": "--algorithm"},
    )
    server: str | None = Field(
        None,
        description=f"what is combined with the algorithm, joined by a plus (fednova+momentum+ccvr); rules at the "
        f"server: {', '.join(GENERAL_SERVERS)} (default: the algorithm's own); a term added to the loss: "
        f"{', '.join(TERMS)}; a phase after training: {', '.join(PHASES)}",
    )

    @property
    def options(self) -> RuleOptions:
        """The settings of the two rules."""
        return dict(self.model_extra or {})


class TrainSettings(Section):
    """How long and how the parties train."""

    rounds: Annotated[int, Field(ge=1, le=100_000)] = Field(20, description="communication rounds")
    epochs: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        None,
        description=f"local epochs per round (default: {DEFAULT_EPOCHS}; your own tables: about ten steps per class "
        f"and party, 5 to 30 epochs, at least {DEFAULT_EPOCHS} with a simulated label skew)",
    )
    batch: Count | None = Field(None, description="batch size; default: the data set's (digits 16, others 64)")
    optimizer: Literal["sgd", "adamw"] = Field(
        "sgd",
        description="optimiser of local training: sgd, adamw; its state is reset every round except in solo and "
        "centralised",
    )
    lr: Positive = Field(0.01, description="learning rate of local training; with adamw 0.001 unless given")
    lr_schedule: Literal["constant", "cosine", "linear"] | None = Field(
        None,
        description="learning rate by round: constant; cosine and linear fall from --lr towards 0 over all rounds "
        f"(default: {DEFAULT_LR_SCHEDULE}; your own tables: cosine)",
    )
    lr_decay: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0, description="factor on the learning rate from round to round, beside --lr-schedule (0.998 in some papers)"
    )
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(0.9, description="momentum of local SGD; adamw has its own")
    weight_decay: NonNegative | None = Field(
        None,
        description=f"weight decay on every parameter, decoupled with adamw (default: {DEFAULT_WEIGHT_DECAY:g}; your "
        "own tables: 1 / rows, at most 0.01)",
    )
    max_grad_norm: NonNegative = Field(0.0, description="clip gradients to this norm before each step; 0: never")
    patience: Annotated[int, Field(ge=0, le=100_000)] = Field(
        0,
        description="stop when the loss on rows set aside (--monitor) has not improved for this many evaluated rounds, "
        "and keep the best model; 0: never",
    )
    calibrate: bool = Field(
        False,
        description="divide the final model's logits by a temperature that is fitted on the rows of --monitor",
        json_schema_extra={"flag": "--calibrate/--no-calibrate"},
    )


class CohortSettings(Section):
    """Which parties take part in a round, and how much of their work gets done."""

    fraction: Annotated[float, Field(gt=0, le=1)] = Field(1.0, description="fraction C of the parties in a round")
    sampling: Literal["uniform", "by-rows"] = Field(
        "uniform",
        description="how the parties of a round are drawn; uniform: at random, without replacement, weighted by rows "
        "in the average; by-rows: with replacement, more often with more rows, weighted equally in the average",
    )
    stragglers: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="fraction of the cohort that does only part of its steps"
    )
    straggler_work: Annotated[str, Field(pattern=r"^(0?\.\d+|0|1(\.0*)?)-(0?\.\d+|1(\.0*)?)$")] = Field(
        "0.1-0.9", description="range of the fraction of its steps that a straggler gets done"
    )
    stragglers_keep: bool = Field(
        True,
        description="keep or drop the partial work of stragglers",
        json_schema_extra={"flag": "--stragglers-keep/--stragglers-drop"},
    )

    @field_validator("straggler_work")
    @classmethod
    def _low_before_high(cls, value: str) -> str:
        low, high = value.split("-")
        if float(low) > float(high):
            raise PydanticCustomError("range", "LOW-HIGH with LOW <= HIGH")
        return value


class RunSettings(Section):
    """What decides how a run is carried out."""

    seed: Annotated[int, Field(ge=0, lt=2**32)] = Field(0, description="seed of the trial")
    engine: Literal["auto", "sequential", "stacked", "ray"] = Field(
        "auto",
        description="sequential: one party after the other; stacked: parties vectorised; auto: stacked, except for "
        "large networks and, on a CPU, small data sets; ray: as auto, in processes of Ray that train a slice each",
    )
    slices: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        None,
        description="slices of a cohort that are trained apart; part of what is computed, whatever trains them "
        f"(default: {DEFAULT_RAY_SLICES} with --engine ray, else 1)",
    )
    device: Annotated[str, Field(pattern=DEVICE_PATTERN)] = Field("auto", description=DEVICE_HELP)
    threads: Annotated[int, Field(ge=0, le=1024)] = Field(0, description="CPU cores to use; 0: all of them")
    precision: Literal["auto", "fp32", "tf32", "fp16"] = Field(
        "auto",
        description="numeric precision on GPUs: fp32, tf32 (as auto), fp16",
    )
    lanes: Annotated[int, Field(ge=0, le=100_000)] = Field(
        0, description="maximum number of lanes of the stacked engine; 0: chosen automatically"
    )
    compile: bool = Field(
        True,
        description="compile the stacked engine's step on a GPU while it trains, if the run is long enough",
        json_schema_extra={"flag": "--compile/--no-compile"},
    )
    gamma: bool = Field(
        False,
        description="record each party's gamma: gradient norm after the round over before",
        json_schema_extra={"flag": "--gamma/--no-gamma"},
    )
    checkpoint_every: Count = Field(1, description="rounds between two saved states; the last round is always saved")
    evaluate_every: Count = Field(1, description="rounds between two evaluations; the last round is always evaluated")
    evaluate_parties: bool = Field(
        False,
        description="also evaluate each party's model after its local training; personal methods always do",
        json_schema_extra={"flag": "--evaluate-parties/--no-evaluate-parties"},
    )
    tensorboard: bool = Field(
        False,
        description="also log to tensorboard/ in the run folder",
        json_schema_extra={"flag": "--tensorboard/--no-tensorboard"},
    )
