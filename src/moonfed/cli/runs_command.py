"""moonfed runs."""

import json as encoding
from pathlib import Path
from typing import Annotated

import typer

from moonfed.cli.help_pages import Json


def runs(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="where to look")] = Path("runs"), json: Json = False
) -> None:
    """List the runs in a folder: accuracy, progress, and whether they can be resumed."""
    from moonfed.report.listings import runs_table
    from moonfed.report.terminal import print_table
    from moonfed.storage.run_record import list_runs

    found = list_runs(folder)
    if json:
        typer.echo(encoding.dumps(found, indent=2, allow_nan=False))
    elif found:
        print_table(runs_table(found))
    else:
        typer.echo(f"no runs in {folder} yet; start one with: moonfed run")
