"""One flag per setting, made from the settings themselves: a default has one home."""

import inspect
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from pydantic import BaseModel

from moonfed.cli.help_pages import Json
from moonfed.core.errors import UserError
from moonfed.core.regular_file import regular_size
from moonfed.training.config import SECTIONS, flag_in
from moonfed.training.registry import BASELINE, all_settings
from moonfed.training.rule_options import setting_flag

Values = dict[str, dict[str, Any]]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="run folder; default: a name made from the settings, in runs/"),
]
Resume = Annotated[bool, typer.Option("--resume", help="continue from the last saved round")]
Seeds = Annotated[str | None, typer.Option("--seeds", help="seeds of the trials, 0,1,2 or 0-4 (default 0,1,2)")]
MAX_CONFIG_BYTES = 30_000
DEFAULT_ALGORITHM: str = SECTIONS["algorithm"].model_fields["name"].default
TABLES = {"compare": "moonfed compare", "federation": "moonfed federate (or federation start)"}
PANELS = {
    "data": "Data and split",
    "model": "Network",
    "algorithm": "Algorithm",
    "train": "Local training",
    "cohort": "Who takes part",
    "run": "How it is run",
    "federation": "Waiting and refusing",
}
HoldoutSeeds = Annotated[
    str | None,
    typer.Option(
        "--holdout-seeds",
        help="seeds of several hold-outs of your own data, 0-4: every one is trained with every seed "
        "(default: one hold-out, --holdout-seed)",
        rich_help_panel=PANELS["data"],
        metavar="VALUE",
    ),
]


class Several(NamedTuple):
    """What every command that runs several trials takes beside the settings."""

    seeds: Seeds = None
    holdout_seeds: HoldoutSeeds = None
    out: Out = None
    resume: Resume = False
    json: Json = False


class Sources(NamedTuple):
    """Where settings come from beside their own flags."""

    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="TOML file of settings, one table per section")
    ] = None
    set: Annotated[
        list[str] | None, typer.Option("--set", metavar="SECTION.NAME=VALUE", help="any setting; may be repeated")
    ] = None


def with_settings(
    sections: Sequence[str],
    without: Sequence[str] = (),
    more: Mapping[str, type[BaseModel]] | None = None,
    tables: Sequence[str] = (),
    shared: Sequence[str] = (),
) -> Callable[[Callable[..., None]], Any]:
    """Give a command --config, --set and a flag for every setting of some sections; it gets the values as `given`.

    What is typed wins over --set, and --set over the file. A parameter `several` stands for all the flags of Several.
    tables are the tables of a file that the command reads beside the sections; shared are settings of the algorithm
    that have a flag though its section has none.
    """
    models = {name: SECTIONS[name] for name in sections} | dict(more or {})

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = dict(inspect.signature(command).parameters)
        del own["given"]
        several = own.pop("several", None)
        own |= inspect.signature(Several).parameters if several else {}
        own |= inspect.signature(Sources).parameters
        flags = {f.key: f for s in models for f in _flags(s, models[s]) if f.key not in without}
        flags |= {f.key: f for f in _flags("algorithm", SECTIONS["algorithm"]) if f.name in shared}

        def called(**values: Any) -> None:
            typed: Values = {}
            owned: list[str] = []  # flags that name an algorithm: --fedntd.beta
            for key, flag in flags.items():
                if (value := values.pop(key)) is not None:
                    typed.setdefault(flag.section, {})[flag.name] = value
                    owned += [flag.flag] if "." in flag.flag else []
            given = read_settings(typed, values.pop("config"), values.pop("set") or [])
            _refuse_others(owned, given.get("algorithm", {}))
            _refuse_tables(given, {*(more or {}), *tables})
            if several:
                values["several"] = Several(**{name: values.pop(name) for name in Several._fields})
            command(given=given, **values)

        parameters = [*own.values(), *(flag.parameter for flag in flags.values())]
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {p.name: p.annotation for p in parameters}
        called.__doc__, called.__name__ = command.__doc__, command.__name__
        return called

    return decorate


def _refuse_others(flags: Sequence[str], algorithm: Mapping[str, Any]) -> None:
    """Refuse a flag that names an algorithm other than the one that is run."""
    named = algorithm.get("name", DEFAULT_ALGORITHM), algorithm.get("server")
    chosen = "+".join(str(name) for name in named if name is not None)
    for flag in flags:
        owner = flag[2:].rpartition(".")[0]
        if not {*owner.split("+")} <= {*chosen.split("+"), "fedavg"}:
            raise UserError(f"{flag} is a setting of {owner}, the algorithm is {chosen}; omit it, or use {owner}")


def read_settings(typed: Values, file: Path | None, assignments: Sequence[str]) -> Values:
    """Merge what a file, --set and the flags say: the later wins."""
    values: Values = {}
    for layer in (_from_file(file) if file else {}, _from_assignments(assignments), typed):
        for section, entries in layer.items():
            if isinstance(entries, list) and entries and all(isinstance(entry, dict) for entry in entries):
                raise UserError(f"{section} is a list in {file}; write [{section}] once, with single brackets")
            if not isinstance(entries, dict):
                raise UserError(f"{section} stands outside a section; sections are {', '.join(SECTIONS)}")
            values.setdefault(section, {}).update(entries)
    return values


def _refuse_tables(given: Values, tables: set[str]) -> None:
    """Refuse a table of a config file that another command reads, and name that command."""
    for table, owner in TABLES.items():
        if table in given and table not in tables:
            raise UserError(f"the table [{table}] is read by {owner} only; use that, or omit the table")


class SettingFlag(NamedTuple):
    """A setting's flag, and the parameter by which typer knows it."""

    section: str
    name: str
    flag: str
    parameter: inspect.Parameter

    @property
    def key(self) -> str:
        """The name of the parameter."""
        return self.parameter.name


def _flags(section: str, model: type[BaseModel]) -> list[SettingFlag]:
    """Make the flags of a section: of every field, and for the algorithm of every setting of every rule."""
    found: list[SettingFlag] = []
    for name, field in model.model_fields.items():
        default = "" if field.default is None else f" (default {_shown(name, field.default)})"
        kind = bool if field.annotation is bool else str
        flag, help = flag_in(model, name), f"{field.description}{default}"
        found.append(SettingFlag(section, name, flag, _parameter(section, name, flag, help, kind)))
    if section == "algorithm":
        by_flag: dict[tuple[str, str], dict[str, list[str]]] = {}  # to help texts, each with the defaults it is said of
        for name, owners in all_settings().items():
            for algorithm, field in owners:
                said = by_flag.setdefault((name, setting_flag(algorithm, name)), {})
                owner = algorithm.removeprefix(f"{BASELINE}+")  # a phase's settings are the same with any algorithm
                said.setdefault(field.metadata["help"], []).append(f"{owner} {field.default}")
        for (name, flag), said in by_flag.items():
            help = "; ".join(f"{text} (default {', '.join(defaults)})" for text, defaults in said.items())
            found.append(SettingFlag(section, name, flag, _parameter(section, name, flag, help, str)))
    return found


def _parameter(section: str, name: str, flag: str, help: str, kind: type) -> inspect.Parameter:
    option = typer.Option(flag, help=help, rich_help_panel=PANELS[section], show_default=False, metavar=_metavar(kind))
    annotation = Annotated[kind | None, option]
    owner = flag[2:].split(".")[0].replace("-", "_") + "_" if "." in flag else ""  # --fedntd.beta
    key = f"{section}_{owner}{name}"
    return inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _metavar(kind: type) -> str | None:
    return None if kind is bool else "VALUE"


def _shown(name: str, default: Any) -> str:
    words = {"stragglers_keep": "keep"} if default is True else {}
    return words.get(name, {True: "on", False: "off"}[default] if isinstance(default, bool) else str(default))


def _from_file(path: Path) -> Values:
    try:
        size = regular_size(path)
        if size > MAX_CONFIG_BYTES:
            raise UserError(f"{path} has {size:,} bytes, a TOML file of settings has at most {MAX_CONFIG_BYTES:,}")
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; --config needs an existing TOML file") from None
    except (ValueError, RecursionError) as error:  # not UTF-8, not TOML, a number or a nesting beyond all measure
        raise UserError(f"{path} is not TOML: {error}") from None


def _from_assignments(assignments: Sequence[str]) -> Values:
    values: Values = {}
    for text in assignments:
        place, equals, value = text.partition("=")
        section, dot, name = place.strip().partition(".")
        if not (equals and section and dot and name):
            raise UserError(f"--set needs SECTION.NAME=VALUE, for example algorithm.mu=1, got {text!r}")
        values.setdefault(section, {})[name] = _literal(value.strip())
    return values


def _literal(text: str) -> Any:
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except (ValueError, RecursionError):
        return text
