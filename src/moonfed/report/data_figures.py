"""Pictures that need the data set: who holds what, and what the encoders make of it."""

import statistics
from collections.abc import Callable
from functools import lru_cache

from moonfed.core.errors import UserError
from moonfed.data import DATASETS, Dataset
from moonfed.data.readers import ReaderOptions, read_dataset
from moonfed.report.blocks import Block, Paragraph, Picture, Pictures, Section
from moonfed.report.embedding import embed, panel
from moonfed.report.figures import SIZE
from moonfed.report.heatmap import heatmap
from moonfed.report.methods import Method, Setting
from moonfed.report.sections import slug
from moonfed.storage.features import SHOWN, features, model_of, network, sample_rows
from moonfed.storage.run_record import RunRecord
from moonfed.training.registry import ALGORITHMS
from moonfed.training.settings import reader_options
from moonfed.training.split_summary import describe_split

MOST_SPLITS = 3
Say = Callable[[str], None]


def split_section(setting: Setting, name: str) -> Section:
    """Draw the heat map of each split, up to three of them."""
    by_split: dict[int, RunRecord] = {}
    for record in (record for method in setting.methods for record in method.records):
        if not ALGORITHMS[record.config.algorithm.name].pooled:
            by_split.setdefault(record.seeds[0], record)
    title = "Who holds what"
    if not by_split:
        return Section(title, [Paragraph("All rows are in one place.")], 3)
    drawn: list[Picture] = []
    for seed, record in sorted(by_split.items())[:MOST_SPLITS]:
        try:
            split = describe_split(record.config, load(record))
        except UserError as error:
            return Section(title, [Paragraph(f"Not drawn: {error}.", warns=True)], 3)
        sizes = split["sizes"]
        told = f"{len(sizes)} parties hold {min(sizes)} to {max(sizes)} of {sum(sizes)} rows"
        caption = f"Split {seed}: {told}, {statistics.fmean(sizes):.0f} on average. Darker is more."
        alt = f"Rows of each class at each party, split seed {seed}: {told}."
        drawn.append(Picture(f"{name}-split-{seed}", heatmap(split, SIZE[0]), alt, caption))
    blocks: list[Block] = [Pictures(drawn)]
    if len(by_split) > MOST_SPLITS:
        blocks.append(Paragraph(f"{len(by_split)} splits were used; the first {MOST_SPLITS} are drawn."))
    return Section(title, blocks, 3)


def feature_section(setting: Setting, name: str, rows: int, say: Say = lambda line: None) -> Section | None:
    """Draw what the last model of each method makes of the same test rows; None where no method has trained."""
    methods = [method for method in setting.methods if method.rows]
    if not methods:
        return None
    blocks: list[Block] = []
    drawn: list[Picture] = []
    wide, classes = 0, 0
    for place, method in enumerate(methods, start=1):
        record = shown(method)
        say(f"t-SNE of {method.name} on {setting.config.data.dataset}, {place} of {len(methods)}")
        try:
            data = load(record)
            which, model = model_of(record, data)
            sample = sample_rows(data, rows)
            found = features(network(record.config, data), model, data, sample)
        except UserError as error:
            blocks.append(Paragraph(f"{method.name} is not drawn: {error}.", warns=True))
            continue
        wide, classes, rows = found.shape[1], data.classes, len(sample)
        whose = f"{method.name}, {which}"
        picture = panel(embed(found), data.test_labels[sample], method.name)
        alt = f"t-SNE of the features of {len(sample)} test rows in {whose}, coloured by class."
        drawn.append(Picture(f"{name}-tsne-{slug(method.name)}", picture, alt, f"{whose}, seed {record.seeds[1]}"))
    if drawn:
        some = f" of the first {SHOWN} of {classes} classes" if classes > SHOWN else ""
        told = (
            f"The encoder's {wide} features of the same {rows} test rows{some}, placed in the plane by t-SNE. "
            "Colours and numbers are classes. Axes have no meaning, and distances between groups little."
        )
        blocks = [Paragraph(told), Pictures(drawn, small=True), *blocks]
    return Section("What the models see", blocks, 3)


def shown(method: Method) -> RunRecord:
    """The first of a method's trials that count."""
    return next(record for record in method.records if record.seeds in method.rows)


def load(record: RunRecord) -> Dataset:
    """Load the data set of a record, and refuse it if it is not the one the run saw."""
    settings = record.config.data
    data = _loaded(settings.dataset, settings.path, reader_options(settings))
    if record.data is not None and record.data != data.fingerprint:
        raise UserError(f"the {data.name} that is here is not the one of {record.folder}")
    return data


@lru_cache(maxsize=1)
def _loaded(name: str, path: str | None, own: ReaderOptions) -> Dataset:
    return DATASETS[name]() if path is None else read_dataset(path, own)
