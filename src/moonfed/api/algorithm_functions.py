"""The algorithms as functions: moon(mu=5), fedprox(mu=0.1), moon(server="fedavgm"). They follow from the registry."""

import inspect
from typing import Any

from moonfed.core.errors import UserError
from moonfed.core.rules import Algorithm, Preset, settings_of
from moonfed.experiments.compare import parse_method
from moonfed.training.registry import ALGORITHMS, check_options, check_settings, make_algorithm, preset_of


class AlgorithmFunction:
    """Makes an algorithm from its settings, with the server's side of another algorithm if that is asked for.

    >>> from moonfed import moon
    >>> moon(mu=5).local
    MoonLocal(mu=5.0, temperature=0.5, negatives=1)
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.__name__ = self.__qualname__ = name.replace("-", "_")
        preset = preset_of(name)
        fields = {k: f for rule in preset.rules for k, f in settings_of(rule).items()}
        lines = [f"  {k}: {f.metadata['help']}" for k, f in fields.items()]
        about = next((rule.__doc__ for rule in preset.rules if rule.__module__ != "moonfed.core.rules"), None)
        first = f"Make the algorithm {name}: {(about or '').splitlines()[0]}"
        self.__doc__ = "\n".join([first, "", *lines, "  server: the server's side of another algorithm"])
        kind = inspect.Parameter.KEYWORD_ONLY
        settings = [inspect.Parameter(k, kind, default=f.default, annotation=f.type) for k, f in fields.items()]
        server = inspect.Parameter("server", kind, default=None, annotation=str | None)
        self.__signature__ = inspect.Signature([*settings, server], return_annotation=Algorithm)

    def __call__(self, *, server: str | None = None, **settings: float | int | str) -> Algorithm:
        """Make the algorithm; an unknown setting or a value out of range is refused."""
        return make_algorithm(self.name, server, check_options(self.name, server, settings))

    def __repr__(self) -> str:
        return f"{self.__name__}{self.__signature__}"


FUNCTIONS = {name.replace("-", "_"): AlgorithmFunction(name) for name in ALGORITHMS}
"""Every algorithm by its Python name."""

_REGISTERED_BY_USERS: set[str] = set()


def algorithm_of(given: "Algorithm | AlgorithmFunction | str") -> Algorithm:
    """Take an algorithm as it is, or make it from its function or its name: moon, "moon", "moon:mu=5"."""
    if isinstance(given, AlgorithmFunction):
        return given()
    if isinstance(given, str):
        settings = parse_method(given)
        name, server = settings.pop("name"), settings.pop("server", None)
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
    return algorithm.name + (":" + ",".join(f"{k}={_short(v)}" for k, v in changed.items()) if changed else "")


def _short(value: float | int | str) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _register(algorithm: Algorithm) -> None:
    """Register a user's algorithm by its name, for this process."""
    name, plus, _ = algorithm.name.partition("+")
    known = ALGORITHMS.get(name)
    server = type(algorithm.aggregator), type(algorithm.server_optimizer)
    if known is None or name in _REGISTERED_BY_USERS:  # a notebook cell that is run again makes another class
        preset = Preset(name, type(algorithm.local), *server)
        check_settings([*ALGORITHMS.values(), preset])
        _REGISTERED_BY_USERS.add(name)
        ALGORITHMS[name] = preset
    elif type(algorithm.local) is not known.local or not (plus or server == known.rules[1:]):
        raise UserError(f"there is another algorithm of the name {name}; give yours another name")
