"""Plots that need the data set: the split between parties, and the features of the encoders."""

import logging
import statistics
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from moonfed.core.errors import UserError
from moonfed.core.files import read_json
from moonfed.core.wording import counted
from moonfed.data import DATASETS, Dataset
from moonfed.data.readers import ReaderOptions, read_dataset
from moonfed.report.blocks import Block, Details, Paragraph, Plot, PlotGrid, Section
from moonfed.report.cell_text import slug
from moonfed.report.embedding import embed, panel
from moonfed.report.figures import SIZE
from moonfed.report.final_models import class_names
from moonfed.report.heatmap import heatmap
from moonfed.report.methods import Method, Setting
from moonfed.storage.features import SHOWN, features, model_of, network, sample_rows
from moonfed.storage.run_files import ROSTER
from moonfed.storage.run_record import RunRecord
from moonfed.training.registry import ALGORITHMS
from moonfed.training.split_summary import describe_split
from moonfed.training.user_data import reader_options

logger = logging.getLogger(__name__)

FIRST_PARTY = 0  # whose features are plotted where each party has its own model
MAX_SEEDS_PLOTTED = 3  # of one kind of split
MAX_SPLITS_PLOTTED = 12  # of a page
SPLIT_SETTINGS = (
    *("dataset", "path", "partition", "parties", "beta", "classes_per_party", "floor", "validation"),
    *("population", "rows_per_party"),
)


def split_section(settings: Sequence[Setting], name: str) -> Section:
    """Plot the heat map of each split once, whatever number of groups and seeds have it."""
    title = "Rows of each class at each party"
    kinds = _splits(settings)
    if not kinds:
        return Section(title, [Paragraph("All rows are in one place.")], short="Splits")
    plots: list[Plot] = []
    blocks: list[Block] = []
    shown = [
        (kind, record) for kind, by_seed in enumerate(kinds) for record in list(by_seed.values())[:MAX_SEEDS_PLOTTED]
    ]
    for kind, record in shown[:MAX_SPLITS_PLOTTED]:
        try:
            plots.append(_split_plot(record, f"{name}-split-{kind + 1}" if len(kinds) > 1 else f"{name}-split"))
        except UserError as error:
            blocks.append(Paragraph(f"Not plotted: {error}.", warning=True))
    used = sum(len(by_seed) for by_seed in kinds)
    if used > len(plots) and plots:
        blocks.append(Paragraph(f"{used} splits were used; {len(plots)} are plotted."))
    found: list[Block] = [*([PlotGrid(plots)] if plots else []), *dict.fromkeys(blocks)]
    return Section(title, found if len(settings) == 1 else [Details("Heat maps", found)], short="Splits")


def _splits(settings: Sequence[Setting]) -> list[dict[int, RunRecord]]:
    """A trial of each split, by kind of split and seed; a natural split and the sites' are the same for every seed."""
    kinds: dict[tuple[Any, ...], dict[int, RunRecord]] = {}
    records = [record for setting in settings for method in setting.methods for record in method.records]
    for record in records:
        data = record.config.data
        if not ALGORITHMS[record.config.algorithm.name].pooled:
            sites = _sites(record)
            kind = ("sites", *sites.items()) if sites else tuple(getattr(data, key) for key in SPLIT_SETTINGS)
            fixed = sites or data.partition == "natural"
            kinds.setdefault(kind, {}).setdefault(0 if fixed else record.seeds.split, record)
    return [dict(sorted(by_seed.items())) for by_seed in kinds.values()]


def _sites(record: RunRecord) -> dict[str, tuple[int, ...]]:
    """Return the rows of each class at the sites of a federation, by name; nothing for a simulation."""
    path = record.folder / ROSTER
    if not path.exists():
        return {}
    sites: dict[str, Any] = read_json(path).get("sites", {})
    return {name: tuple(site["class_counts"]) for name, site in sites.items()}


def _split_of(record: RunRecord) -> dict[str, Any]:
    """Describe a split: that of the sites as they enrolled, or that which the settings give."""
    sites = _sites(record)
    if not sites:
        return describe_split(record.config, load(record))
    counts = list(sites.values())
    return {
        "dataset": record.config.data.dataset,
        "partition": "natural",
        "sizes": [sum(own) for own in counts],
        "party_names": list(sites),
        "class_names": list(class_names(record, len(counts[0]))) or None,
        "class_counts": counts,
    }


def _split_plot(record: RunRecord, name: str) -> Plot:
    split, seed = _split_of(record), record.seeds.split
    sizes = split["sizes"]
    holders = counted(len(sizes), "party holds", "parties hold")
    counts = f"{holders} {min(sizes)} to {max(sizes)} of {sum(sizes)} rows"
    which = "Natural split" if split["partition"] == "natural" else f"Split seed {seed}"
    caption = f"{which}: {counts}, {statistics.fmean(sizes):.0f} on average. Darker is more."
    alt = f"Rows of each class at each party. {which}: {counts}."
    return Plot(f"{name}-{seed}", heatmap(split, SIZE[0]), alt, caption)


def feature_section(setting: Setting, name: str, rows: int) -> Section | None:
    """Plot the features of the same test rows in each method's final model; None if no method has trained."""
    methods = [method for method in setting.methods if method.rows]
    if not methods:
        return None
    blocks: list[Block] = []
    plots: list[Plot] = []
    width, classes = 0, 0
    for place, method in enumerate(methods, start=1):
        record = first_counted(method)
        logger.info("t-SNE of %s on %s, %d of %d", method.name, setting.config.data.dataset, place, len(methods))
        try:
            data = load(record)
            which, model = model_of(record, data, None, FIRST_PARTY)
            sample = sample_rows(data, rows)
            found = features(network(record.config, data), model, data, sample)
        except UserError as error:
            blocks.append(Paragraph(f"{method.name} is not plotted: {error}.", warning=True))
            continue
        width, classes, rows = found.shape[1], data.classes, len(sample)
        whose = f"{method.name}, {which}"
        names = class_names(record, data.classes)
        figure = panel(embed(found), data.test_labels[sample], method.name, names)
        alt = f"t-SNE of the features of {len(sample)} test rows in {whose}, coloured by class."
        plots.append(Plot(f"{name}-tsne-{slug(method.name)}", figure, alt, f"{whose}, seed {record.seeds.training}"))
    if plots:
        some = f" of the first {SHOWN} of {classes} classes" if classes > SHOWN else ""
        text = (
            f"The encoder's {width} features of the same {rows} test rows{some}, projected to the plane by t-SNE. "
            "Colours and labels are classes. Axes have no meaning, and distances between groups little."
        )
        blocks = [Paragraph(text), *blocks, PlotGrid(plots, small=True)]
    return Section("Features of the final models", blocks, 3)


def first_counted(method: Method) -> RunRecord:
    """The first of a method's trials that count."""
    return next(record for record in method.records if record.seeds in method.rows)


def load(record: RunRecord) -> Dataset:
    """Load the data set of a record; raises UserError if it is not the data set that the run used.

    Of a federation, whose fingerprint is of the rows at the sites, the coordinator's rows are taken as they are now.
    """
    settings = record.config.data
    data = _load_cached(settings.dataset, settings.path, reader_options(settings))
    if record.data not in (None, data.fingerprint) and not _sites(record):
        raise UserError(f"{data.name} on this machine is not the data set that {record.folder} was run on")
    return data


@lru_cache(maxsize=1)
def _load_cached(name: str, path: str | None, options: ReaderOptions) -> Dataset:
    return DATASETS[name]() if path is None else read_dataset(path, options)
