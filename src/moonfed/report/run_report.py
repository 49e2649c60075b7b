"""The report of any runs: what was run, the results, the cost."""

import logging
from collections.abc import Sequence
from pathlib import Path

from moonfed import __version__
from moonfed.core.errors import UserError
from moonfed.core.files import make_folder, write_bytes
from moonfed.report import sections as part
from moonfed.report.blocks import Block, Details, Paragraph, Section, plots_of, tables_of
from moonfed.report.consensus import consensus_table
from moonfed.report.data_figures import feature_section, split_section
from moonfed.report.figures import save
from moonfed.report.final_models import final_models_section
from moonfed.report.methods import Setting
from moonfed.report.overview import all_settings, overview
from moonfed.report.page import write_page
from moonfed.report.summary import opening, summary_section
from moonfed.report.table_formats import TABLE_FORMATS
from moonfed.report.trial_cost import cost_table

logger = logging.getLogger(__name__)

TSNE_ROWS = 500  # test rows whose features are plotted
MAX_PLOTTED_GROUPS = 40  # beyond which a group has tables only
MAX_TSNE_MODELS = 8  # of a page, beyond which features are only plotted on request


def report_sections(
    settings: Sequence[Setting], targets: Sequence[float] = (), tsne: int | None = None
) -> list[Section]:
    """Make the page: a summary, every setting in detail, the splits, what was run.

    tsne is the number of test rows whose features are plotted, 0 for none; by default they are only plotted if the page
    has few models.
    """
    models = sum(bool(method.rows) for setting in settings for method in setting.methods)
    rows = tsne if tsne is not None else TSNE_ROWS if models <= MAX_TSNE_MODELS else 0
    names = [f"{place}-{setting.config.data.dataset}" for place, setting in enumerate(settings, start=1)]
    anchors = {setting.title: f"group{place}" for place, setting in enumerate(settings, start=1)}
    chapters = [summary_section(settings, names, anchors)]
    groups: list[Block] = []
    for place, (setting, name) in enumerate(zip(settings, names, strict=True)):
        logger.info("plotting %s", setting.title)
        plotted = place < MAX_PLOTTED_GROUPS
        found = group_sections(setting, name, targets, rows, plotted)
        if len(settings) == 1:
            chapters += found
        else:
            groups.append(Details(setting.title, [*opening(setting, name, plotted), *found], anchors[setting.title]))
    if groups:
        few = f"Figures are of the first {MAX_PLOTTED_GROUPS} groups; for others report fewer runs."
        chapters.append(Section("Groups", [*([Paragraph(few)] if len(groups) > MAX_PLOTTED_GROUPS else []), *groups]))
    chapters.append(split_section(settings, names[0] if len(settings) == 1 else "all"))
    if tsne is None and rows == 0:
        note = f"t-SNE of the features of {models} final models is not plotted; --tsne ROWS plots it."
        chapters.append(Section("Features of the final models", [Paragraph(note)], short="Features"))
    return [*chapters, overview(settings)]


def setting_sections(setting: Setting, name: str, targets: Sequence[float] = (), tsne: int = 0) -> list[Section]:
    """Make the sections of one setting; the names of its tables and figures start with `name`."""
    sections = [summary_section([setting], [name], {}), *group_sections(setting, name, targets, tsne)]
    return [*sections, split_section([setting], name)]


def group_sections(
    setting: Setting, name: str, targets: Sequence[float], tsne: int, plotted: bool = True
) -> list[Section]:
    """Curves, final models, features, and folded tables of one setting; the curves only if it is plotted."""
    found: list[Section] = []
    tables: list[Block] = []
    if any(method.rows for method in setting.methods):
        if plotted:
            found.append(Section("Round by round", [part.curve_plots(setting, name)], 3))
        if len(setting.methods) > 1 or targets:
            tables.append(Details("Rounds to accuracy", [part.rounds_table(setting, f"{name}-rounds", targets)]))
        if (graph := consensus_table(setting, f"{name}-graph")) is not None:
            tables.append(Details("Models of the parties", [graph]))
        tables.append(Details("Cost", [cost_table(setting, f"{name}-cost")]))
    models = final_models_section(setting, name)
    features = feature_section(setting, name, tsne) if tsne else None
    found += [section for section in (models, features) if section is not None]
    return [*found, Section("Details", [*tables, *all_settings(setting, name)], 3)]


def write_report(title: str, sections: Sequence[Section], path: Path, introduction: str = "") -> None:
    """Write the page."""
    write_page(
        title, sections, path, introduction, f"Made by moonfed {__version__} from the round records of the runs."
    )


def write_files(sections: Sequence[Section], folder: Path) -> list[Path]:
    """Write every figure as SVG, PDF and PNG and every table as Markdown, LaTeX and CSV."""
    make_folder(folder)
    written: list[Path] = []
    for table in tables_of(sections):
        for suffix, render in TABLE_FORMATS.items():
            written.append(folder / f"{table.name}.{suffix}")
            write_bytes(written[-1], render(table).encode())
    for plot in plots_of(sections):
        written += save(plot.figure, folder, plot.name)
    names = [path.name for path in written]
    if len(set(names)) < len(names):
        raise UserError("two figures or tables of the report have the same name")
    return written
