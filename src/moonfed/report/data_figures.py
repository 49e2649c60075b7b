"""Plots that need the data set: the split between parties, and the features of the encoders."""

import logging
import statistics
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from moonfed.core.errors import UserError
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
from moonfed.storage.run_record import RunRecord
from moonfed.training.registry import ALGORITHMS
from moonfed.training.split_summary import describe_split
from moonfed.training.user_data import reader_options

logger = logging.getLogger(__name__)

MAX_SEEDS_PLOTTED = 3  # of one kind of split
MAX_SPLITS_PLOTTED = 12  # of a page
SPLIT_SETTINGS = ("dataset", "path", "partition", "parties", "beta", "classes_per_party", "floor", "validation")


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
    """A trial of each split, by kind of split and seed; a natural split is the same for every seed."""
    kinds: dict[tuple[Any, ...], dict[int, RunRecord]] = {}
    records = [record for setting in settings for method in setting.methods for record in method.records]
    for record in records:
        data = record.config.data
        if not ALGORITHMS[record.config.algorithm.name].pooled:
            natural = data.partition == "natural"
            kind = tuple(getattr(data, key) for key in SPLIT_SETTINGS)
            kinds.setdefault(kind, {}).setdefault(0 if natural else record.seeds.split, record)
    return [dict(sorted(by_seed.items())) for by_seed in kinds.values()]


def _split_plot(record: RunRecord, name: str) -> Plot:
    split, seed = describe_split(record.config, load(record)), record.seeds.split
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
            which, model = model_of(record, data)
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
    """Load the data set of a record; raises UserError if it is not the data set that the run used."""
    settings = record.config.data
    data = _load_cached(settings.dataset, settings.path, reader_options(settings))
    if record.data is not None and record.data != data.fingerprint:
        raise UserError(f"{data.name} on this machine is not the data set that {record.folder} was run on")
    return data


@lru_cache(maxsize=1)
def _load_cached(name: str, path: str | None, options: ReaderOptions) -> Dataset:
    return DATASETS[name]() if path is None else read_dataset(path, options)
