"""The report of any runs: what was run, the results, the cost."""

import logging
from collections.abc import Sequence
from pathlib import Path

from moonfed import __version__
from moonfed.core.errors import UserError
from moonfed.core.files import make_folder, write_bytes
from moonfed.report import sections as part
from moonfed.report.blocks import Block, Section, plots_of, tables_of
from moonfed.report.data_figures import feature_section, split_section
from moonfed.report.figures import save
from moonfed.report.methods import Setting
from moonfed.report.overview import all_settings, overview
from moonfed.report.page import write_page
from moonfed.report.table_formats import TABLE_FORMATS

logger = logging.getLogger(__name__)


def report_sections(settings: Sequence[Setting], targets: Sequence[float] = (), tsne: int = 0) -> list[Section]:
    """Make a chapter for every setting; tsne is the number of test rows whose features are plotted, 0 for none."""
    chapters = [overview(settings)]
    for place, setting in enumerate(settings, start=1):
        logger.info("plotting %s", setting.title)
        name = f"{place}-{setting.config.data.dataset}"
        chapters += setting_sections(setting, name, targets, tsne)
    return chapters


def setting_sections(setting: Setting, name: str, targets: Sequence[float] = (), tsne: int = 0) -> list[Section]:
    """Make the sections of one setting; the names of its tables and figures start with `name`."""
    blocks: list[Block] = [*part.remarks(setting), part.accuracy_table(setting, f"{name}-accuracy")]
    differences = part.difference_plot(setting, name)
    if differences is not None:
        blocks.append(differences)
    found = [Section(setting.title, blocks)]
    if any(method.rows for method in setting.methods):
        found.append(Section("Round by round", [part.curve_plots(setting, name)], 3))
        if len(setting.methods) > 1 or targets:
            found.append(Section("Rounds to accuracy", [part.rounds_table(setting, f"{name}-rounds", targets)], 3))
        found.append(Section("Cost", [part.cost_table(setting, f"{name}-cost")], 3))
    found.append(split_section(setting, name))
    features = feature_section(setting, name, tsne) if tsne else None
    if features is not None:
        found.append(features)
    return [*found, Section("Details", all_settings(setting, name), 3)]


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
