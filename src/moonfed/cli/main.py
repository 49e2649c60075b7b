"""The commands: run, compare, sweep, tune, partition, runs, predict, export, report, bench and the others."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from moonfed import __version__
from moonfed.cli.bench_command import bench
from moonfed.cli.data_commands import app as data
from moonfed.cli.federation_commands import federate, federation, site
from moonfed.cli.flags import Json, Out, Resume, Several, Values, with_settings
from moonfed.cli.help_pages import Commands, usage_message
from moonfed.cli.model_commands import export, predict
from moonfed.cli.progress import messages_to, print_line, showing
from moonfed.cli.report_command import report
from moonfed.cli.reproduce_command import reproduce
from moonfed.cli.run_summary import close, with_advice
from moonfed.cli.tune_command import tune
from moonfed.core.errors import RunFailed, UserError
from moonfed.training.config import make_config

app = Commands(
    help="Federated learning on non-IID data, built round MOON.\n\nStart with: moonfed compare moon fedavg",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

INTERRUPTED = 130  # what Typer makes of Ctrl-C


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"moonfed {__version__}")
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """Take what stands before the command."""


@app.command()
@with_settings(("algorithm", "data", "model", "train", "cohort", "run"))
def run(given: Values, out: Out = None, resume: Resume = False, json: Json = False) -> None:
    """Train one algorithm: moonfed run --algorithm moon --mu 5 --parties 10 --beta 0.5 --rounds 20 --seed 0."""
    from moonfed.experiments.execute import execute
    from moonfed.training.setup import set_up

    settings = make_config(given)
    with showing() as display:
        ((_, record),) = execute(*set_up([settings]), [out], resume, [display])
    close(record, json)


@app.command()
@with_settings(("data", "model", "train", "cohort", "run"))
def compare(
    given: Values,
    several: Several,
    methods: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[METHODS]...",
            help="moon, fedavg, moon:mu=5, moon+fedavgm:server_momentum=0.9, ...; default: those of the table "
            "[compare] in the --config file",
        ),
    ] = None,
) -> None:
    """Train several methods over several seeds and print one table: moonfed compare moon fedavg --seeds 0,1,2."""
    from moonfed.experiments.compare import compare_options, plan_comparison

    chosen = compare_options(methods or [], several.seeds, given.pop("compare", {}))
    folder, plan = plan_comparison(chosen.methods, chosen.seeds, given, several.out)
    _run_together(folder, plan, several, "method", chosen.baseline)


@app.command()
@with_settings(("algorithm", "data", "model", "train", "cohort", "run"))
def sweep(
    given: Values,
    several: Several,
) -> None:
    """Train one algorithm with every value of a grid, in shared stacks: moonfed sweep --mu 0.1,1,5,10 --seeds 0,1,2."""
    from moonfed.experiments.sweep import plan_sweep

    folder, plan = plan_sweep(several.seeds, given, several.out)
    _run_together(folder, plan, several, "setting")


def _run_together(
    folder: Path, plan: list[tuple[str, Any, Path]], several: Several, kind: str, baseline: str | None = None
) -> None:
    """Run the trials of a plan and print one table of them."""
    from moonfed.experiments.execute import execute
    from moonfed.report.by_party import accuracy_by_party, party_table
    from moonfed.report.methods import comparison
    from moonfed.report.sections import accuracy_table
    from moonfed.report.terminal import print_table
    from moonfed.training.setup import set_up

    names, settings, places = zip(*plan, strict=True)
    with showing() as display:
        outcomes = [record for _, record in execute(*set_up(settings, names), places, several.resume, [display])]
    named = list(zip(names, outcomes, strict=True))
    setting = comparison(named, baseline)
    if several.json:
        _print_json(setting.as_json()["methods"])
    else:
        print_table(accuracy_table(setting, folder.name, setting.title, kind))
        if (parties := party_table(accuracy_by_party(named))) is not None:
            print_table(parties)
        typer.echo(f"runs: {folder}/{kind.upper()}/seed-N")
    for outcome in outcomes:
        if outcome.failure is not None:
            raise RunFailed(with_advice(outcome.failure, outcome.folder, len(outcome.rows)))
    if not all(outcome.finished for outcome in outcomes):
        raise RunFailed(f"stopped early, saved in {folder}; continue with --resume")


@app.command()
@with_settings(("data",))
def partition(
    given: Values,
    seed: Annotated[str | None, typer.Option("--seed", help="seed of the split (default 0)", metavar="VALUE")] = None,
    json: Json = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="draw the heat map of classes and parties: .png, .svg, .pdf")
    ] = None,
) -> None:
    """Split the rows between parties and show who holds what."""
    from moonfed.report.heatmap import draw_heatmap
    from moonfed.report.listings import partition_table
    from moonfed.report.terminal import print_table
    from moonfed.training.split_summary import describe_split

    if seed is not None:
        given.setdefault("run", {})["seed"] = seed
    settings = make_config(given)
    with messages_to(print_line):
        split = describe_split(settings)
    if plot is not None:
        draw_heatmap(split, plot)
    if json:
        _print_json(split)
    else:
        print_table(partition_table(split))
        if plot is not None:
            typer.echo(f"drawn to {plot}")


@app.command()
def runs(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="where to look")] = Path("runs"), json: Json = False
) -> None:
    """List the runs in a folder: accuracy, progress, and whether they can be resumed."""
    from moonfed.report.listings import runs_table
    from moonfed.report.terminal import print_table
    from moonfed.storage.run_record import list_runs

    found = list_runs(folder)
    if json:
        _print_json(found)
    elif found:
        print_table(runs_table(found))
    else:
        typer.echo(f"no runs in {folder} yet; start one with: moonfed run")


app.command()(tune)
app.command()(predict)
app.command()(export)
app.command()(report)
app.command()(bench)
app.command()(reproduce)
app.command()(federate)
app.add_typer(federation, name="federation")
app.add_typer(site, name="site")
app.add_typer(data, name="data")


def main() -> None:
    """Run the command line: exit 0 done, 1 the run failed, 2 the user's input was wrong."""
    sys.exit(_main())


def _main() -> int:
    try:
        code = app(sys.argv[1:] or ["--help"], standalone_mode=False, prog_name="moonfed")
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except UserError as error:
        return _say(str(error), 2)
    except RunFailed as error:
        return _say(str(error), 1)
    except KeyboardInterrupt:
        return _say("stopped", 1)
    except BrokenPipeError:
        return 1
    except Exception as error:
        # Typer brings its own copy of click in newer versions: its usage errors are told by what they can do.
        if hasattr(error, "format_message"):
            return _say(usage_message(error), 2)
        if type(error).__name__ == "Abort":
            return _say("stopped", 1)
        raise


def _say(message: str, code: int) -> int:
    print_line(f"moonfed: {' '.join(message.splitlines())}")
    return code


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, allow_nan=False))
