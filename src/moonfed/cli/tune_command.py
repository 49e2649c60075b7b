"""moonfed tune."""

import json as encoding
from pathlib import Path
from typing import Annotated

import typer

from moonfed.cli.flags import Values, with_settings
from moonfed.cli.help_pages import Json
from moonfed.cli.progress import showing

RESULT = "tune.json"


@with_settings(("algorithm", "data", "model", "train", "cohort", "run"), without=("run_seed",))
def tune(
    given: Values,
    budget: Annotated[
        int, typer.Option("--budget", metavar="TRIALS", help="maximum number of trials, each as long as a run")
    ] = 60,
    seeds: Annotated[
        str | None, typer.Option("--seeds", help="seeds of the final comparison, 0,1,2 or 0-4 (default 0-4)")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="folder; default: a name made from the settings, in runs/"),
    ] = None,
    json: Json = False,
) -> None:
    """Choose settings of a method by held-out training rows: moonfed tune --mu 0.1,1,5,10 --budget 24."""
    from moonfed.core.files import make_folder, write_json
    from moonfed.experiments.tune import plan_tune, result_of, run_search
    from moonfed.report.listings import tuning_table
    from moonfed.report.terminal import print_table

    search = plan_tune(seeds, given, budget, out)
    with showing() as display:
        results = run_search(search, [display])
    found = result_of(search, results)
    make_folder(search.folder)
    write_json(search.folder / RESULT, found)
    if json:
        typer.echo(encoding.dumps(found, indent=2, allow_nan=False))
    else:
        print_table(tuning_table(found))
        typer.echo(f"{found['conclusion']}\nnext: {found['command']}")
        typer.echo(f"written to {search.folder / RESULT}")
