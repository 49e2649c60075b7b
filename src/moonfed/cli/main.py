"""The list of commands; a command's module, and torch with it, is imported when the command is called."""

import sys
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command

from moonfed import __version__
from moonfed.cli import quiet_interrupts
from moonfed.cli.help_pages import Commands, usage_message
from moonfed.core.errors import RunFailed, UserError


class Listed(NamedTuple):
    """A command as the top help page lists it: the module that has it by its name, and its help's first line."""

    module: str
    help: str


COMMANDS = {
    "run": Listed(
        "training_commands",
        "Train one algorithm: moonfed run --algorithm moon --mu 5 --parties 10 --beta 0.5 --rounds 20 --seed 0.",
    ),
    "compare": Listed(
        "training_commands",
        "Train several methods over several seeds and print one table: moonfed compare moon fedavg --seeds 0,1,2.",
    ),
    "sweep": Listed(
        "training_commands",
        "Train one algorithm with every value of a grid, in shared stacks: moonfed sweep --mu 0.1,1,5,10 --seeds "
        "0,1,2.",
    ),
    "partition": Listed("training_commands", "Split the rows between parties and show who holds what."),
    "runs": Listed("runs_command", "List the runs in a folder: accuracy, progress, and whether they can be resumed."),
    "tune": Listed(
        "tune_command",
        "Choose settings of a method by held-out training rows: moonfed tune --mu 0.1,1,5,10 --budget 24.",
    ),
    "predict": Listed(
        "model_commands",
        "Predict the classes of new rows with a run's model: moonfed predict runs/mine new.csv -o predictions.csv.",
    ),
    "export": Listed(
        "model_commands",
        "Write a run's model as one file that needs nothing of this package: moonfed export runs/mine -o model.onnx.",
    ),
    "report": Listed("report_command", "Write one page about any runs: moonfed report runs/demo -o report.html."),
    "bench": Listed(
        "bench_command",
        "Time the same work by the eager loop and by the stacked engine; both must end at the same weights.",
    ),
    "reproduce": Listed(
        "reproduce_command",
        "Reproduce published tables and figures: moonfed reproduce table1 --dataset cifar10.",
    ),
    "federate": Listed(
        "federation_commands",
        "Run a real federation on this machine, over Flower with TLS and keys: moonfed federate --sites 3 --rounds 2.",
    ),
    "federation": Listed(
        "federation_commands",
        "The coordinator's side of a federation: moonfed federation init, admit, start, renew.",
    ),
    "site": Listed("federation_commands", "A site's side of a federation: moonfed site init, join."),
    "data": Listed("data_commands", "List, get and check data sets: moonfed data get cifar10"),
}
"""In the order of the help page. A test holds each line against the command's own docstring."""

INTERRUPTED = 130  # what Typer makes of Ctrl-C


class LazyGroup(TyperGroup):
    """Lists commands by name and first line, and loads the one that is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Find the command that the arguments begin with, and load it."""
        name, listed, rest = super().resolve_command(ctx, args)
        return name, load(name) if name else listed, rest


def load(name: str) -> Any:
    """Import a command and make it ready to be called."""
    with quiet_interrupts():
        found = getattr(import_module(f"moonfed.cli.{COMMANDS[name].module}"), name)
    if not isinstance(found, typer.Typer):
        function, found = found, Commands()
        found.command(name)(function)
    return get_command(found)


app = Commands(
    cls=LazyGroup,
    help="Federated learning on non-IID data, built round MOON.\n\nStart with: moonfed compare moon fedavg",
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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


def _not_loaded() -> None:
    """Stand for a command in the list; LazyGroup calls the command itself."""


for _name, _listed in COMMANDS.items():
    app.command(_name, help=_listed.help)(_not_loaded)


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
    typer.echo(f"moonfed: {' '.join(message.splitlines())}", err=True)
    return code
