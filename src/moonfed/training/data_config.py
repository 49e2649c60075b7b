"""The settings of the data section: which rows there are, which party holds them, and how one's own are read."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from moonfed.core.errors import UserError
from moonfed.data import DATASETS, NATURAL_DATASETS
from moonfed.data.partition import PARTITIONS
from moonfed.data.readers import ReaderOptions, dataset_name


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
Positive = Annotated[float, Field(gt=0)]


class DataSettings(Section):
    """Which rows there are, and which party holds them."""

    dataset: str = Field("digits", description=f"data set: {', '.join(DATASETS)}")
    partition: str = Field(
        "auto",
        description=f"how rows are split: {', '.join(PARTITIONS)}; auto: natural where rows say whose they are, else "
        "dirichlet",
    )
    parties: Count = Field(10, description="number of parties")
    beta: float = Field(0.5, description="concentration of the Dirichlet distribution; smaller is more skewed")
    classes_per_party: Count = Field(2, description="classes a party holds (partition shards)")
    floor: Count = Field(
        10, description="fewest rows a party may hold; a split below it is drawn again; own data: a batch"
    )
    partition_seed: Annotated[int, Field(ge=0, lt=2**32)] | None = Field(
        None, description="seed of the split; default: the seed"
    )
    validation: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="share of each party's training rows to hold out and judge by, instead of the test rows"
    )
    path: str | None = Field(
        None,
        description="your own data: a .csv, .tsv, .parquet or .npz file, a folder of pictures or .wav files by class, "
        "a Hugging Face data set on disk; default: the data set",
        json_schema_extra={"flag": "--data"},
    )
    label: str | None = Field(None, description="column with the class; default: label in a table, y in an .npz file")
    party: str | None = Field(
        None,
        description="column that says whose a row is (site, speaker); folder: folders of parties hold the classes; "
        "default: none",
    )
    text: str | None = Field(
        None, description="column to read as text, instead of all the others as numbers; default: none"
    )
    ignore: str | None = Field(None, description="columns to leave out, separated by commas; default: none")
    categories: str | None = Field(
        None, description="columns of numbers that are names, separated by commas; default: none"
    )
    test: str | None = Field(None, description="file or folder with the test rows; default: some rows are held out")
    holdout: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.2, description="share of each party's rows that is held out for testing"
    )
    holdout_seed: Annotated[int, Field(ge=0, lt=2**32)] = Field(
        0, description="seed of which rows are held out, the same for all trials"
    )
    skip_bad_rows: bool = Field(
        False,
        description="go on without rows that cannot be used, and say which",
        json_schema_extra={"flag": "--skip-bad-rows/--no-skip-bad-rows"},
    )
    size: Annotated[str, Field(pattern=r"^[1-9]\d{0,3}(x[1-9]\d{0,3})?$")] | None = Field(
        None, description="size of pictures in pixels, 32 or HEIGHTxWIDTH; default: the most frequent, at most 64"
    )
    seconds: Annotated[float, Field(gt=0, le=600)] | None = Field(
        None, description="length of sounds; default: nine of ten are whole"
    )
    vocabulary: Count = Field(10_000, description="most words of texts that are told apart")
    length: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        None, description="most words of a text that are read; default: 99 of 100 texts are whole, at most 256"
    )

    @property
    def judged(self) -> str:
        """The word for the rows that models are judged on: test rows, or held-out rows of the parties' own."""
        return "held-out" if self.validation else "test"

    @property
    def judged_on(self) -> str:
        """The same in a sentence."""
        return "rows held out of training" if self.validation else "the test rows"


# What is about data of one's own, and nothing to a run without.
OWN = (
    *("path", "label", "party", "text", "ignore", "categories", "test", "holdout", "holdout_seed", "skip_bad_rows"),
    *("size", "seconds", "vocabulary", "length"),
)


def settled(data: DataSettings) -> DataSettings:
    """Settle what follows from the settings alone: the name of one's own data, the split of a known data set."""
    if data.path is None:
        given = [name for name in OWN if getattr(data, name) != type(data).model_fields[name].default]
        if given:
            flag = "--" + given[0].replace("_", "-")
            raise UserError(f"{flag} is about your own data; name it with --data PATH")
        usual = "natural" if data.dataset in NATURAL_DATASETS else "dirichlet"
        return data.model_copy(update={"partition": usual}) if data.partition == "auto" else data
    name = dataset_name(data.path)
    if "dataset" in data.model_fields_set and data.dataset != name:
        raise UserError(f"--dataset {data.dataset} and --data {data.path} name two data sets; use one of them")
    return data.model_copy(update={"dataset": name})


def reader_options(data: DataSettings) -> ReaderOptions:
    """Say how data of one's own is to be read."""
    height, _, width = (data.size or "").partition("x")
    return ReaderOptions(
        label=data.label,
        party=data.party,
        text=data.text,
        ignore=_listed(data.ignore),
        categories=_listed(data.categories),
        test=data.test,
        holdout=data.holdout,
        holdout_seed=data.holdout_seed,
        skip_bad_rows=data.skip_bad_rows,
        size=(int(height), int(width or height)) if height else None,
        seconds=data.seconds,
        vocabulary=data.vocabulary,
        length=data.length,
    )


def _listed(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())
