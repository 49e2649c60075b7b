"""The settings that are about user data: which they are, and how they become the options of a reader."""

from moonfed.core.errors import UserError
from moonfed.data import NATURAL_DATASETS
from moonfed.data.readers import ReaderOptions, dataset_name
from moonfed.training.settings import DataSettings

# Settings of user data, without meaning for a run on a data set of the catalog.
OWN = (
    *("path", "label", "party", "text", "ignore", "categories", "test", "holdout", "holdout_seed", "skip_bad_rows"),
    *("size", "seconds", "vocabulary", "length"),
)


def settled(data: DataSettings) -> DataSettings:
    """Fill in what follows from the settings alone: the name of user data, the split of a known data set."""
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
    """Return how user data is read."""
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
