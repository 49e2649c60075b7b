"""Every algorithm by name, collected from the files of algorithms/, aggregators/ and server_optimizers/.

A new algorithm is one file with a PRESET: Python names, flags, help and the tables of the docs follow from it.
"""

import pkgutil
from collections.abc import Iterable, Sequence
from dataclasses import Field
from importlib import import_module
from typing import Any, NamedTuple

from moonfed.core.errors import UserError, unknown
from moonfed.core.rules import Aggregator, Algorithm, Preset, ServerOptimizer, settings_of
from moonfed.core.types import MAX_NUMBER

RuleOptions = dict[str, Any]

KINDS: dict[Any, str] = {float: "a number", int: "a whole number", str: "a word"}
SIGNS = {"ge": (">=", float.__ge__), "gt": (">", float.__gt__), "le": ("<=", float.__le__), "lt": ("<", float.__lt__)}


class ServerRules(NamedTuple):
    """The server's side of a preset, which --server can combine with another local rule."""

    aggregator: type[Aggregator]
    server_optimizer: type[ServerOptimizer]


def collect(rooms: Sequence[str]) -> dict[str, Preset]:
    """Import every file of some rooms and collect their presets, sorted by name."""
    presets: dict[str, Preset] = {}
    for room in rooms:
        for module in pkgutil.iter_modules(import_module(room).__path__):
            preset: Preset = import_module(f"{room}.{module.name}").PRESET
            if preset.name in presets:
                raise ValueError(f"two files register the name {preset.name}; {room}.{module.name} is one")
            presets[preset.name] = preset
    check_settings(presets.values())
    return dict(sorted(presets.items()))


def check_settings(presets: Iterable[Preset]) -> None:
    """Refuse a setting that rules of different roles share: in a combination they could not be told apart."""
    owners: dict[str, tuple[int, str]] = {}
    for preset in presets:
        for role, rule in enumerate(preset.rules):
            for name in settings_of(rule):
                if name in ("name", "server"):
                    raise ValueError(f"{rule.__name__} declares {name}, which names an algorithm; rename it")
                other, owner = owners.setdefault(name, (role, rule.__name__))
                if other != role:
                    raise ValueError(f"{rule.__name__} and {owner} both declare {name}; rename one of them")


ALGORITHMS = collect(("moonfed.algorithms", "moonfed.aggregators", "moonfed.server_optimizers"))
SERVERS = {
    name: ServerRules(preset.aggregator, preset.server_optimizer)
    for name, preset in ALGORITHMS.items()
    if name == "fedavg" or (preset.aggregator, preset.server_optimizer) != (Aggregator, ServerOptimizer)
}


def preset_of(name: str, server: str | None = None) -> Preset:
    """Look up an algorithm, with the server's side of another one if that is asked for."""
    if name not in ALGORITHMS:
        raise unknown("algorithm", name, ALGORITHMS)
    if server is None:
        return ALGORITHMS[name]
    if server not in SERVERS:
        raise unknown("server rule", server, SERVERS)
    return ALGORITHMS[name]._replace(name=full_name(name, server), **SERVERS[server]._asdict())


def check_options(name: str, server: str | None, options: RuleOptions) -> RuleOptions:
    """Check the settings of an algorithm's rules and fill in the defaults."""
    preset = preset_of(name, server)
    declared = {k: f for rule in preset.rules for k, f in settings_of(rule).items()}
    for key in options:
        if key not in declared:
            raise _unknown_setting(preset.name, key, declared)
    return {k: _check_option(name, f, options.get(k, f.default)) for k, f in declared.items()}


def make_algorithm(name: str, server: str | None, options: RuleOptions) -> Algorithm:
    """Make an algorithm from checked options."""
    preset = preset_of(name, server)
    values = [{k: options[k] for k in settings_of(rule)} for rule in preset.rules]
    local, aggregator, optimizer = preset.rules
    return Algorithm(preset.name, local(**values[0]), aggregator(**values[1]), optimizer(**values[2]))


def full_name(name: str, server: str | None) -> str:
    """Name a combination: moon, or moon+fedavgm."""
    return name if server is None else f"{name}+{server}"


def all_settings() -> dict[str, list[tuple[str, Field[Any]]]]:
    """List every setting of every rule: name to (algorithm, field) pairs."""
    found: dict[str, list[tuple[str, Field[Any]]]] = {}
    for algorithm, preset in ALGORITHMS.items():
        for rule in preset.rules:
            for name, field in settings_of(rule).items():
                found.setdefault(name, []).append((algorithm, field))
    return found


def _unknown_setting(name: str, key: str, declared: dict[str, Any]) -> UserError:
    owners = [algorithm for algorithm, _ in all_settings().get(key, [])]
    known = f"its settings: {', '.join(sorted(declared))}" if declared else "it has no settings of its own"
    if owners:
        verb = "has" if len(owners) == 1 else "have"
        return UserError(f"{name} has no setting {key} ({', '.join(owners)} {verb} it); {known}")
    return (
        unknown("setting", key, declared, f"of {name}")
        if declared
        else UserError(f'no setting "{key}" of {name}; {known}')
    )


def setting_flag(algorithm: str, name: str) -> str:
    """Name the flag of a rule's setting: --mu, or --ALGORITHM.NAME where a section has a flag of that name."""
    from moonfed.training.config import section_flags  # which needs this module to be imported first

    plain = "--" + name.replace("_", "-")
    return f"--{algorithm}.{plain[2:]}" if plain in section_flags() else plain


def _check_option(name: str, field: Any, value: Any) -> Any:
    kind, flag = field.type, setting_flag(name, field.name)
    try:
        if isinstance(value, bool) or (kind is int and float(value) != int(float(value))):
            raise ValueError
        value = kind(float(value)) if kind is int else kind(value)
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"{name}.{field.name} needs {KINDS[kind]}, got {value!r}; set it with {flag}") from None
    choices, limits = field.metadata["choices"], field.metadata["limits"]
    if choices and value not in choices:
        raise unknown(f"{name}.{field.name}", value, choices)
    if kind is float and not (float("-inf") < value < float("inf")):
        raise UserError(f"{name}.{field.name} needs a finite number, got {value}; set it with {flag}")
    if kind is float and abs(value) > MAX_NUMBER:
        raise UserError(f"{name}.{field.name} needs a value <= {MAX_NUMBER:g}, got {value}; set it with {flag}")
    for key, bound in limits.items():
        if bound is not None and not SIGNS[key][1](float(value), float(bound)):
            raise UserError(
                f"{name}.{field.name} needs a value {SIGNS[key][0]} {bound}, got {value}; set it with {flag}"
            )
    return value
