"""The algorithms as functions: moon(mu=5), fedprox(mu=0.1), moon(server="fedavgm")."""

import inspect
from typing import Any

from moonfed.algorithms import ALGORITHMS, Pair
from moonfed.core.errors import UserError
from moonfed.core.rules import Algorithm, settings_of
from moonfed.experiments.compare import parse_method
from moonfed.training.registry import check_options, make_algorithm, rules_of


class Method:
    """Makes an algorithm from its settings, and the name of another algorithm's server rule if that is wanted.

    >>> from moonfed import moon
    >>> moon(mu=5).local
    Contrastive(mu=5.0, temperature=0.5, negatives=1)
    """

    def __init__(self, name: str) -> None:
        self.name = self.__name__ = self.__qualname__ = name
        rules = rules_of(name, None)
        fields = {k: f for rule in rules for k, f in settings_of(rule).items()}
        lines = [f"  {k}: {f.metadata['help']}" for k, f in fields.items()]
        first = f"Make the algorithm {name}: {(rules[0].__doc__ or '').splitlines()[0]}"
        self.__doc__ = "\n".join([first, "", *lines, "  server: another algorithm's server rule"])
        kind = inspect.Parameter.KEYWORD_ONLY
        given = [inspect.Parameter(k, kind, default=f.default, annotation=f.type) for k, f in fields.items()]
        server = inspect.Parameter("server", kind, default=None, annotation=str | None)
        self.__signature__ = inspect.Signature([*given, server], return_annotation=Algorithm)

    def __call__(self, *, server: str | None = None, **settings: float | int | str) -> Algorithm:
        """Make the algorithm; a setting it does not have, or a value out of range, is refused."""
        return make_algorithm(self.name, server, check_options(self.name, server, settings))

    def __repr__(self) -> str:
        return f"{self.name.replace('-', '_')}{self.__signature__}"


centralised = Method("centralised")
fedavg = Method("fedavg")
fedavgm = Method("fedavgm")
fednova = Method("fednova")
fedprox = Method("fedprox")
median = Method("median")
moon = Method("moon")
moon_l2 = Method("moon-l2")
scaffold = Method("scaffold")
scaffold_niid = Method("scaffold-niid")
solo = Method("solo")
trimmed_mean = Method("trimmed-mean")

_USERS: set[str] = set()  # algorithms that came by Python


def algorithm_of(given: "Algorithm | Method | str") -> Algorithm:
    """Take an algorithm as it is, or make it from its function or from words: "moon", "moon:mu=5"."""
    if isinstance(given, Method):
        return given()
    if isinstance(given, str):
        settings = parse_method(given)
        name, server = settings.pop("name"), settings.pop("server", None)
        return make_algorithm(name, server, check_options(name, server, settings))
    if not isinstance(given, Algorithm):
        raise UserError(f"an algorithm is moon(), fedavg() and so on, or a name, got {type(given).__name__}")
    _known(given)
    return given


def as_settings(algorithm: Algorithm) -> dict[str, Any]:
    """Put an algorithm in the form of settings."""
    name, plus, server = algorithm.name.partition("+")
    options = {k: getattr(rule, k) for rule in (algorithm.local, algorithm.server) for k in settings_of(rule)}
    return {"name": name, "server": server if plus else None} | options


def label_of(algorithm: Algorithm) -> str:
    """Name an algorithm by what it is: its name, and the settings that are not the default ones."""
    rules = (algorithm.local, algorithm.server)
    other = {k: getattr(r, k) for r in rules for k, f in settings_of(r).items() if getattr(r, k) != f.default}
    return algorithm.name + (":" + ",".join(f"{k}={_short(v)}" for k, v in other.items()) if other else "")


def _short(value: float | int | str) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _known(algorithm: Algorithm) -> None:
    """Let the package know an algorithm of the user's own by its name, from now on in this process."""
    name, plus, _ = algorithm.name.partition("+")
    pair = ALGORITHMS.get(name)
    if pair is None or name in _USERS:  # a cell of a notebook that is run again makes another class of the same name
        _USERS.add(name)
        for rule in (algorithm.local, algorithm.server):
            settings_of(rule)  # refuses a setting that is not declared
        ALGORITHMS[name] = Pair(type(algorithm.local), type(algorithm.server))
    elif type(algorithm.local) is not pair.local or not (plus or type(algorithm.server) is pair.server):
        raise UserError(f"there is another algorithm of the name {name}; give yours another name")
