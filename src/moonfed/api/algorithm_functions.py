"""The algorithms as functions: moon(mu=5), fedprox(mu=0.1), moon(server="fedavgm"). They follow from the registry."""

import inspect
import sys
from collections.abc import Callable
from dataclasses import Field
from textwrap import fill
from typing import Any, TypeAlias

from moonfed.api.keywords import keyword_errors
from moonfed.core.algorithm import Algorithm, Preset
from moonfed.core.errors import UserError
from moonfed.core.rules import settings_of
from moonfed.core.wording import short_value
from moonfed.experiments.compare import parse_method
from moonfed.training.registry import (
    ALGORITHMS,
    GENERAL_SERVERS,
    PHASES,
    TERMS,
    check_options,
    check_settings,
    chosen_server,
    make_algorithm,
    preset_of,
)
from moonfed.training.rule_options import SIGNS

AlgorithmFunction: TypeAlias = Callable[..., Algorithm]


def algorithm_function(name: str) -> AlgorithmFunction:
    """Write the function of an algorithm, with its settings as keywords, and its paper and their ranges as help.

    >>> from moonfed import moon
    >>> moon(mu=5).local
    MoonLocal(mu=5.0, temperature=0.5, negatives=1)
    """
    fields = {k: f for rule in preset_of(name).rules for k, f in settings_of(rule).items()}

    @keyword_errors()
    def make(*positional: Any, server: str | None = None, **settings: float | int | str) -> Algorithm:
        if positional:
            example = f"{next(iter(fields))}={positional[0]!r}" if fields else "server='fedavgm'"
            raise UserError(
                f"{make.__name__} takes keywords, for example {make.__name__}({example}); got a plain value"
            )
        if not isinstance(server, str | None):
            raise UserError(f"server takes names of rules, for example server='fedavgm', got {server!r}")
        chosen = chosen_server(name, server, settings)
        return make_algorithm(name, chosen, check_options(name, chosen, settings))

    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(k, kind, default=f.default, annotation=f.type) for k, f in fields.items()]
    parameters.append(inspect.Parameter("server", kind, default=None, annotation=str | None))
    make.__name__ = make.__qualname__ = name.replace("-", "_")
    make.__module__ = "moonfed"
    make.__doc__ = _describe(name, fields)
    make.__signature__ = inspect.Signature(parameters, return_annotation=Algorithm)  # type: ignore[attr-defined]
    return make


def _describe(name: str, fields: dict[str, Field[Any]]) -> str:
    """Write the help of an algorithm's function: what it is, and every keyword with its range and default."""
    modules = [rule.__module__ for rule in preset_of(name).rules if rule.__module__ != "moonfed.core.rules"]
    about = inspect.getdoc(sys.modules[modules[0]]) if modules else None
    lines = [f"Make the algorithm {name}.", "", about or "", "", "Keywords:"]
    for key, field in fields.items():
        limits = [
            f"{SIGNS[sign][0]} {bound:g}" for sign, bound in field.metadata["limits"].items() if bound is not None
        ]
        limits += [" or ".join(map(repr, field.metadata["choices"]))] if field.metadata["choices"] else []
        lines.append(f"{key}: {'; '.join([field.metadata['help'], *limits, f'default {field.default!r}'])}")
    lines.append(
        f"server: other rules at the server ({', '.join(GENERAL_SERVERS)}, or 'fednova+momentum'), "
        f"{' or '.join(TERMS)} to add that method's term to the loss, "
        f"phases after training ({', '.join(PHASES)}), several joined by a plus; default: its own, and no phase"
    )
    return "\n".join(
        lines[:5] + [fill(line, 96, initial_indent=" " * 4, subsequent_indent=" " * 8) for line in lines[5:]]
    )


FUNCTIONS = {name.replace("-", "_"): algorithm_function(name) for name in ALGORITHMS}
"""Every algorithm by its Python name."""

_REGISTERED_BY_USERS: set[str] = set()


def algorithm_of(given: "Algorithm | AlgorithmFunction | str") -> Algorithm:
    """Take an algorithm as it is, or make it from its function or its name: moon, "moon", "moon:mu=5"."""
    for function in FUNCTIONS.values():
        if given is function:
            return function()
    if isinstance(given, str):
        settings = parse_method(given)
        name, server = settings.pop("name"), settings.pop("server", None)
        server = chosen_server(name, server, settings)
        return make_algorithm(name, server, check_options(name, server, settings))
    if not isinstance(given, Algorithm):
        raise UserError(f"an algorithm is moon(), fedavg() and so on, or a name, got {type(given).__name__}")
    _register(given)
    return given


def as_settings(algorithm: Algorithm) -> dict[str, Any]:
    """Return an algorithm as settings."""
    name, plus, server = algorithm.name.partition("+")
    options = {k: getattr(rule, k) for rule in algorithm.rules for k in settings_of(rule)}
    return {"name": name, "server": server if plus else None} | options


def label_of(algorithm: Algorithm) -> str:
    """Name an algorithm by its name and the settings that differ from the defaults: moon:mu=5."""
    changed = {
        name: getattr(rule, name)
        for rule in algorithm.rules
        for name, field in settings_of(rule).items()
        if getattr(rule, name) != field.default
    }
    return algorithm.name + (":" + ",".join(f"{k}={short_value(v)}" for k, v in changed.items()) if changed else "")


def _register(algorithm: Algorithm) -> None:
    """Register a user's algorithm by its name, for this process."""
    name, plus, after = algorithm.name.partition("+")
    known = ALGORITHMS.get(name)
    server = type(algorithm.aggregator), type(algorithm.server_optimizer)
    if known is None or name in _REGISTERED_BY_USERS:  # a notebook cell that is run again makes another class
        phases = () if plus else tuple(type(phase) for phase in algorithm.phases)
        preset = Preset(name, type(algorithm.local), *server, phases=phases)
        check_settings([*ALGORITHMS.values(), preset])
        _REGISTERED_BY_USERS.add(name)
        ALGORITHMS[name] = preset
    elif type(algorithm.local) is not preset_of(name, after or None).local or not (
        plus or (*server, *map(type, algorithm.phases)) == known.rules[1:]
    ):
        raise UserError(f"there is another algorithm of the name {name}; give yours another name")
