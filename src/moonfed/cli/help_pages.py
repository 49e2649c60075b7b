"""Help pages that fit 80 columns, and usage errors in one line, with every supported version of Typer and click."""

import copy
import inspect
import re
import sys
from typing import Annotated, Any, get_args

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperOption

from moonfed.core.errors import nearest

Json = Annotated[bool, typer.Option("--json", help="print one JSON value to stdout")]


class Command(TyperCommand):
    """A command whose help shows a flag and its opposite as one name, and every default in one form."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help page of a copy whose parameters are named for reading."""
        page = copy.copy(self)
        page.params = [_for_reading(param, self.callback) for param in self.params]
        super(Command, page).format_help(ctx, formatter)


class Commands(typer.Typer):
    """A group of commands with such help pages."""

    def __init__(self, *, add_completion: bool = False, **options: Any) -> None:
        super().__init__(add_completion=add_completion, **options)

    def command(self, name: str | None = None, *, cls: type[TyperCommand] | None = Command, **options: Any) -> Any:
        """Register a command."""
        return super().command(name, cls=cls, **options)


def usage_message(error: Any) -> str:
    """Say in one line what was wrong with the words of a command, and which help page to read."""
    context = getattr(error, "ctx", None)
    message = re.sub(r" \((Did you mean .*|Possible options: .*)\)$", r" \1", error.format_message())
    if word := re.match(r"No such command '(.*?)'\.", message):  # Typer and click both suggest, each in its own way
        near = nearest(word[1], context.command.commands) if context else None
        message = word[0] + (f" Did you mean '{near}'?" if near else "")
    elif word := re.match(r"No such option:? '?--(?:([\w+-]+)\.)?([\w-]+)", message):
        message = _meant_setting(context.command if context else None, word[1], word[2]) or message
    elif context and (word := re.fullmatch(r"(Got unexpected extra argument \((\S+)\))\.?", message)):
        message = word[1] + _meant_algorithm(context.command, word[2])
    page = f"{context.command_path if context else 'moonfed'} --help"
    return f"{message} See {page}" if message.endswith("?") else f"{message.rstrip('.')}; see {page}"


def _meant_setting(command: Any, method: str | None, flag: str) -> str:
    """Say how a setting of a method is given where its flag is none of a command's; empty if it is no setting.

    Commands that take settings have loaded the registry; for others it is not worth the wait.
    """
    if "moonfed.training.registry" not in sys.modules:
        return ""
    from moonfed.training.registry import all_settings
    from moonfed.training.rule_options import setting_flag

    name, typed = flag.replace("-", "_"), f"--{method}.{flag}" if method else f"--{flag}"
    owners = [owner for owner, _ in all_settings().get(name, [])]
    if method is None and not owners:
        return ""
    if any("--algorithm" in param.opts for param in getattr(command, "params", ())):
        flags = list(dict.fromkeys(setting_flag(owner, name) for owner in owners if method in (None, owner)))
        return f"No such option: {typed}" + (f"; it is {' or '.join(flags)} here" if flags else "")
    example = f"{method or owners[0]}:{name}=VALUE"
    return f"No such option: {typed}; settings of a method stand behind its name, {example}"


def _meant_algorithm(command: Any, word: str) -> str:
    """Suggest --algorithm for the name of an algorithm that stands alone, as moonfed compare takes it."""
    if not any("--algorithm" in param.opts for param in command.params):
        return ""
    from moonfed.training.registry import ALGORITHMS

    name = nearest(word, ALGORITHMS)
    return f". Did you mean '--algorithm {name}'?" if name else ""


def _for_reading(param: Any, callback: Any) -> Any:
    """Copy a parameter: one name for a pair of flags, its range or metavar, its help with the default."""
    shown = copy.copy(param)
    if param.param_type_name == "argument":
        shown.help = param.help or _help_of(callback, param.name)  # click 8.5 resets what Typer 0.20 stored
    elif param.secondary_opts:
        shown.opts, shown.secondary_opts = [_pair(param.opts[0], param.secondary_opts[0])], []
    elif getattr(getattr(param, "type", None), "min", None) is not None:  # Typer 0.29 has no type here
        shown = TyperOption(
            param_decls=param.opts, required=param.required, help=param.help, metavar=_range(param.type)
        )
    if param.show_default and param.default not in (None, "", False):
        shown.help, shown.show_default = f"{shown.help} (default {param.default})", False
    shown.help = escape(shown.help or "")
    return shown


def _range(kind: Any) -> str:
    """Name the values of a number with limits."""
    return "NUMBER" if kind.max is None else f"{kind.min}-{kind.max}"


def _pair(on: str, off: str) -> str:
    """Name a flag and its opposite at once: --[no-]compile, --stragglers-[keep|drop]."""
    if off == f"--no-{on[2:]}":
        return f"--[no-]{on[2:]}"
    shared, _, last = on.rpartition("-")
    return f"{shared}-[{last}|{off.removeprefix(f'{shared}-')}]" if off.startswith(f"{shared}-") else f"{on}/{off}"


def _help_of(callback: Any, name: str) -> str:
    """Look up the help of an argument where the command declares it."""
    annotation = inspect.signature(callback).parameters[name].annotation
    return next((info.help or "" for info in get_args(annotation)[1:] if hasattr(info, "help")), "")
