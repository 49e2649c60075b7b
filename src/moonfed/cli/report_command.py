"""moonfed report."""

import json as encoding
import logging
from pathlib import Path
from typing import Annotated

import typer

from moonfed.cli.progress import working
from moonfed.core.errors import UserError

logger = logging.getLogger(__name__)
Json = Annotated[bool, typer.Option("--json", help="print the numbers of the page as one JSON value to stdout")]


def report(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN_FOLDERS...", help="run folders, or folders above them")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="the page")] = Path("report.html"),
    figures: Annotated[
        Path | None,
        typer.Option("--figures", metavar="DIR", help="also write figures (SVG, PDF, PNG) and tables (md, tex, csv)"),
    ] = None,
    target: Annotated[
        list[float] | None,
        typer.Option(
            "--target", metavar="ACCURACY", help="count the rounds to this accuracy too, 0.6; may be repeated"
        ),
    ] = None,
    tsne: Annotated[
        int | None,
        typer.Option(
            "--tsne",
            metavar="ROWS",
            help="test rows whose features are drawn by t-SNE, 0: none (default 500, or 0 for more than 8 models)",
        ),
    ] = None,
    title: Annotated[str, typer.Option("--title", help="heading of the page")] = "Report of runs",
    json: Json = False,
) -> None:
    """Write one page about any runs: moonfed report runs/demo -o report.html."""
    targets = target or []
    _check(out, figures, targets, tsne)
    with working():
        logger.info("reading the runs")
        from moonfed.report.grouping import settings_of
        from moonfed.report.overview import introduction
        from moonfed.report.run_report import report_sections, write_files, write_report
        from moonfed.storage.run_record import read_runs

        settings = settings_of(read_runs(folders))
        sections = report_sections(settings, targets, tsne)
        logger.info("writing %s", out)
        write_report(title, sections, out, introduction(settings))
        if figures is not None:
            logger.info(f"writing figures and tables to {figures}")
            write_files(sections, figures)
    if json:
        answer = {"page": str(out), "settings": [setting.as_json(targets) for setting in settings]}
        typer.echo(encoding.dumps(answer, indent=2, allow_nan=False))
    else:
        typer.echo(f"written to {out}" + (f", figures and tables to {figures}" if figures else ""))


def _check(out: Path, figures: Path | None, targets: list[float], tsne: int | None) -> None:
    """Refuse what cannot be written or drawn, before anything is read."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"-o needs a file that ends in .html, got {out}")
    if out.is_dir() or not out.parent.is_dir():
        raise UserError(f"cannot write {out}: it needs a file's name in a folder that is there")
    if figures is not None and figures.exists() and not figures.is_dir():
        raise UserError(f"--figures needs a folder, {figures} is a file")
    for value in targets:
        if not 0 < value < 1:
            raise UserError(f"--target needs an accuracy between 0 and 1, got {value:g}")
    if tsne and not 10 <= tsne <= 10_000:
        raise UserError(f"--tsne needs 10 to 10000 rows, or 0 for none, got {tsne}")
