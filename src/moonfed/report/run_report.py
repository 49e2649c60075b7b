"""The report of any runs: what was run, what came out, at what cost."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from moonfed import __version__
from moonfed.core.errors import UserError
from moonfed.core.files import unwritable, write_bytes
from moonfed.report import sections as part
from moonfed.report.blocks import Block, Section, pictures_of, tables_of
from moonfed.report.circumstances import all_settings, overview
from moonfed.report.data_figures import Say, feature_section, split_section
from moonfed.report.figures import save
from moonfed.report.methods import Setting
from moonfed.report.page import write_page
from moonfed.report.table_formats import FORMS


def report_sections(
    settings: Sequence[Setting], targets: Sequence[float] = (), tsne: int = 0, say: Say = lambda line: None
) -> list[Section]:
    """Make a chapter of every setting; tsne is the number of test rows whose features are drawn, 0 for none."""
    chapters = [overview(settings)]
    for place, setting in enumerate(settings, start=1):
        say(f"drawing {setting.title}")
        name = f"{place}-{setting.config.data.dataset}"
        chapters += setting_sections(setting, name, targets, tsne, say)
    return chapters


def setting_sections(
    setting: Setting, name: str, targets: Sequence[float] = (), tsne: int = 0, say: Say = lambda line: None
) -> list[Section]:
    """Make the sections of one setting; the name begins those of its tables and figures."""
    blocks: list[Block] = [*part.remarks(setting), part.accuracy_table(setting, f"{name}-accuracy")]
    gaps = part.difference_picture(setting, name)
    if gaps is not None:
        blocks.append(gaps)
    found = [Section(setting.title, blocks)]
    if any(method.rows for method in setting.methods):
        found.append(Section("Round by round", [part.curve_pictures(setting, name)], 3))
        if len(setting.methods) > 1 or targets:
            found.append(Section("Rounds to accuracy", [part.rounds_table(setting, f"{name}-rounds", targets)], 3))
        found.append(Section("Cost", [part.cost_table(setting, f"{name}-cost")], 3))
    found.append(split_section(setting, name))
    seen = feature_section(setting, name, tsne, say) if tsne else None
    if seen is not None:
        found.append(seen)
    return [*found, Section("In full", all_settings(setting, name), 3)]


def write_report(title: str, sections: Sequence[Section], path: Path, lead: str = "") -> None:
    """Write the page."""
    write_page(title, sections, path, lead, f"Made by moonfed {__version__} from the rows of the runs.")


def write_files(sections: Sequence[Section], folder: Path) -> list[Path]:
    """Write every figure as SVG, PDF and PNG and every table as Markdown, LaTeX and CSV."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(folder, error) from None
    written: list[Path] = []
    for table in tables_of(sections):
        for ending, form in FORMS.items():
            written.append(folder / f"{table.name}.{ending}")
            write_bytes(written[-1], form(table).encode())
    for picture in pictures_of(sections):
        written += save(picture.figure, folder, picture.name)
    names = [path.name for path in written]
    if len(set(names)) < len(names):
        raise UserError("two figures or tables of the report have the same name")
    return written


def report_json(settings: Sequence[Setting], targets: Sequence[float] = ()) -> list[dict[str, Any]]:
    """The numbers of the page."""
    return [setting.as_json(targets) for setting in settings]
