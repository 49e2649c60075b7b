"""moonfed data list, get, check."""

import json as encoding
from pathlib import Path
from typing import Annotated, Any

import typer

from moonfed.cli.help_pages import Commands
from moonfed.cli.progress import messages_to, print_line
from moonfed.core.errors import RunFailed, UserError, unknown

data = Commands(help="List, get and check data sets: moonfed data get cifar10")
BUILT_IN = "digits"


@data.callback(invoke_without_command=True)
def top(context: typer.Context) -> None:
    """List, get and check data sets: moonfed data get cifar10."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@data.command("list")
def list_sets(json: Annotated[bool, typer.Option("--json", help="print one JSON value to stdout")] = False) -> None:
    """List the data sets: how large they are, and whether they are here or where they come from."""
    from moonfed.report.listings import data_table
    from moonfed.report.terminal import print_table

    found = described()
    if json:
        typer.echo(encoding.dumps(found, indent=2))
    else:
        print_table(data_table(found))


@data.command()
def get(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="cifar10, flights, sentiment, ...; moonfed data list has them all")
    ],
    given: Annotated[
        Path | None, typer.Option("--from", metavar="PATH", help="official archive or folder that you have already")
    ] = None,
) -> None:
    """Get a data set, verified, into the cache: moonfed data get cifar10."""
    from moonfed.cli.transfer_progress import watching
    from moonfed.data.catalog.obtain import obtain
    from moonfed.data.catalog.sources import ORIGINS

    if name == BUILT_IN and given is None:
        typer.echo(f"{BUILT_IN} is built in, there is nothing to get")
        return
    if name not in ORIGINS:
        raise unknown("data set", name, ORIGINS, "to get")
    with messages_to(print_line), watching(name) as monitor:
        receipt = obtain(ORIGINS[name], given, monitor)
    came = "was here already" if receipt.was_cached else "is here"
    typer.echo(f"{name} {came}, from {receipt.source}, verified by {receipt.verified}: {receipt.path}")


@data.command()
def check(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="one data set; default: all that are here")
    ] = None,
) -> None:
    """Read what is in the cache and verify it again."""
    from moonfed.data.catalog.cache import cache_folder, cache_path, is_cached
    from moonfed.data.catalog.obtain import verify_cached
    from moonfed.data.catalog.sources import ORIGINS

    if name is not None and name not in ORIGINS:
        raise unknown("data set", name, ORIGINS, "to check")
    entries = [origin.entry for origin in ORIGINS.values()]
    asked = [ORIGINS[name].entry] if name else [entry for entry in entries if is_cached(entry)]
    problems: list[str] = []
    for entry in asked:
        try:
            facts = verify_cached(entry)
        except UserError as error:
            if not is_cached(entry):
                raise
            problems.append(str(error))
        else:
            typer.echo(
                f"{entry.name} is whole, from {facts['source']}, verified by {facts['verified']}: {cache_path(entry)}"
            )
    if not asked:
        typer.echo(f"no data set in {cache_folder()} yet; get one with: moonfed data get cifar10")
    if problems:
        raise RunFailed("; ".join(problems))


def described() -> list[dict[str, Any]]:
    """Describe every data set."""
    from moonfed.data import DATASETS
    from moonfed.data.catalog.obtain import cache_state
    from moonfed.data.catalog.sources import ORIGINS

    digits = DATASETS[BUILT_IN]()
    found: list[dict[str, Any]] = [
        {
            "name": BUILT_IN,
            "train": len(digits.inputs),
            "test": len(digits.test_inputs),
            "classes": digits.classes,
            "shape": list(digits.inputs.shape[1:]),
            "size": digits.inputs.nbytes + digits.test_inputs.nbytes,
            "sources": ["scikit-learn"],
            "state": "built in",
            "path": None,
            "bytes": 0,
        }
    ]
    for name, origin in ORIGINS.items():
        entry = origin.entry
        found.append(
            {
                "name": name,
                "train": entry.train,
                "test": entry.test,
                "classes": entry.classes,
                "shape": list(entry.shape),
                "size": entry.size,
                "sources": [source.title for source in origin.sources] or [f"{origin.by_hand}, with --from"],
            }
            | cache_state(entry)
        )
    return found
