"""Plots that need the data set: the split between parties, and the features of the encoders."""

import logging
import statistics
from functools import lru_cache

from moonfed.core.errors import UserError
from moonfed.core.wording import counted
from moonfed.data import DATASETS, Dataset
from moonfed.data.readers import ReaderOptions, read_dataset
from moonfed.report.blocks import Block, Paragraph, Plot, PlotGrid, Section
from moonfed.report.cell_text import slug
from moonfed.report.embedding import embed, panel
from moonfed.report.figures import SIZE
from moonfed.report.heatmap import heatmap
from moonfed.report.methods import Method, Setting
from moonfed.storage.features import SHOWN, features, model_of, network, sample_rows
from moonfed.storage.run_record import RunRecord
from moonfed.training.registry import ALGORITHMS
from moonfed.training.settings import reader_options
from moonfed.training.split_summary import describe_split

logger = logging.getLogger(__name__)

MAX_SPLITS_PLOTTED = 3


def split_section(setting: Setting, name: str) -> Section:
    """Plot the heat map of each split, up to three of them."""
    by_split: dict[int, RunRecord] = {}
    for record in (record for method in setting.methods for record in method.records):
        if not ALGORITHMS[record.config.algorithm.name].pooled:
            by_split.setdefault(record.seeds[0], record)
    title = "Rows of each class at each party"
    if not by_split:
        return Section(title, [Paragraph("All rows are in one place.")], 3)
    plots: list[Plot] = []
    for seed, record in sorted(by_split.items())[:MAX_SPLITS_PLOTTED]:
        try:
            split = describe_split(record.config, load(record))
        except UserError as error:
            return Section(title, [Paragraph(f"Not plotted: {error}.", warning=True)], 3)
        sizes = split["sizes"]
        holders = counted(len(sizes), "party holds", "parties hold")
        counts = f"{holders} {min(sizes)} to {max(sizes)} of {sum(sizes)} rows"
        caption = f"Split {seed}: {counts}, {statistics.fmean(sizes):.0f} on average. Darker is more."
        alt = f"Rows of each class at each party, split seed {seed}: {counts}."
        plots.append(Plot(f"{name}-split-{seed}", heatmap(split, SIZE[0]), alt, caption))
    blocks: list[Block] = [PlotGrid(plots)]
    if len(by_split) > MAX_SPLITS_PLOTTED:
        blocks.append(Paragraph(f"{len(by_split)} splits were used; the first {MAX_SPLITS_PLOTTED} are plotted."))
    return Section(title, blocks, 3)


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
        figure = panel(embed(found), data.test_labels[sample], method.name)
        alt = f"t-SNE of the features of {len(sample)} test rows in {whose}, coloured by class."
        plots.append(Plot(f"{name}-tsne-{slug(method.name)}", figure, alt, f"{whose}, seed {record.seeds[1]}"))
    if plots:
        some = f" of the first {SHOWN} of {classes} classes" if classes > SHOWN else ""
        text = (
            f"The encoder's {width} features of the same {rows} test rows{some}, projected to the plane by t-SNE. "
            "Colours and numbers are classes. Axes have no meaning, and distances between groups little."
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
