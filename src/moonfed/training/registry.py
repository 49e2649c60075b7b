"""From the names and values in a config to the two rules of an algorithm."""

from typing import Any

from moonfed.algorithms import ALGORITHMS, SERVERS
from moonfed.core.errors import UserError, unknown
from moonfed.core.rules import Algorithm, LocalRule, Server, settings_of

RuleOptions = dict[str, Any]

KINDS: dict[Any, str] = {float: "a number", int: "a whole number", str: "a word"}
SIGNS = {"ge": (">=", float.__ge__), "gt": (">", float.__gt__), "le": ("<=", float.__le__), "lt": ("<", float.__lt__)}


def rules_of(name: str, server: str | None) -> tuple[type[LocalRule], type[Server]]:
    """Look up the two rules of an algorithm."""
    if name not in ALGORITHMS:
        raise unknown("algorithm", name, ALGORITHMS)
    if server is not None and server not in SERVERS:
        raise unknown("server rule", server, SERVERS)
    pair = ALGORITHMS[name]
    return pair.local, SERVERS[server] if server else pair.server


def check_options(name: str, server: str | None, options: RuleOptions) -> RuleOptions:
    """Check the settings of an algorithm's rules and fill in the defaults."""
    declared = {k: f for rule in rules_of(name, server) for k, f in settings_of(rule).items()}
    for key in options:
        if key not in declared:
            raise _surplus(name, server, key, declared)
    return {k: _checked(name, f, options.get(k, f.default)) for k, f in declared.items()}


def make_algorithm(name: str, server: str | None, options: RuleOptions) -> Algorithm:
    """Make an algorithm from checked options."""
    local, serving = rules_of(name, server)
    made = [rule(**{k: options[k] for k in settings_of(rule)}) for rule in (local, serving)]
    return Algorithm(full_name(name, server), *made)  # type: ignore[arg-type]


def full_name(name: str, server: str | None) -> str:
    """Name the pair: moon, or moon+fedavgm."""
    return name if server is None else f"{name}+{server}"


def all_settings() -> dict[str, list[tuple[str, Any]]]:
    """List every setting of every rule: name to (algorithm, field) pairs."""
    found: dict[str, list[tuple[str, Any]]] = {}
    for algorithm, pair in ALGORITHMS.items():
        for rule in (pair.local, pair.server):
            for name, field in settings_of(rule).items():
                found.setdefault(name, []).append((algorithm, field))
    return found


def _surplus(name: str, server: str | None, key: str, declared: dict[str, Any]) -> UserError:
    elsewhere = [algorithm for algorithm, _ in all_settings().get(key, [])]
    has = f"its settings: {', '.join(sorted(declared))}" if declared else "it has no settings of its own"
    if elsewhere:
        return UserError(f"{full_name(name, server)} takes no {key} ({', '.join(elsewhere)} would); {has}")
    return (
        unknown(f"setting of {full_name(name, server)}", key, declared)
        if declared
        else UserError(f'no setting "{key}" of {full_name(name, server)}; {has}')
    )


def _checked(name: str, field: Any, value: Any) -> Any:
    kind, flag = field.type, "--" + field.name.replace("_", "-")
    needs = KINDS[kind]
    try:
        if isinstance(value, bool) or (kind is int and float(value) != int(float(value))):
            raise ValueError
        value = kind(float(value)) if kind is int else kind(value)
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"{name}.{field.name} needs {needs}, got {value!r}; set it with {flag}") from None
    choices, limits = field.metadata["choices"], field.metadata["limits"]
    if choices and value not in choices:
        raise unknown(f"{name}.{field.name}", value, choices)
    if kind is float and not (float("-inf") < value < float("inf")):
        raise UserError(f"{name}.{field.name} needs a finite number, got {value}; set it with {flag}")
    for key, bound in limits.items():
        if bound is not None and not SIGNS[key][1](float(value), float(bound)):
            raise UserError(
                f"{name}.{field.name} needs a value {SIGNS[key][0]} {bound}, got {value}; set it with {flag}"
            )
    return value
