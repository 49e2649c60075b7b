"""The settings of rules as a user writes them: their flags, and the checks of their values."""

from typing import Any

from moonfed.core.errors import UserError, unknown
from moonfed.core.types import MAX_NUMBER

VALUE_KINDS: dict[Any, str] = {float: "a number", int: "a whole number", str: "a word"}
SIGNS = {"ge": (">=", float.__ge__), "gt": (">", float.__gt__), "le": ("<=", float.__le__), "lt": ("<", float.__lt__)}


def setting_flag(algorithm: str, name: str) -> str:
    """Name the flag of a rule's setting: --mu, or --ALGORITHM.NAME where a section has a flag of that name."""
    from moonfed.training.config import section_flags  # which needs this module to be imported first

    plain = "--" + name.replace("_", "-")
    return f"--{algorithm}.{plain[2:]}" if plain in section_flags() else plain


def check_option(name: str, field: Any, value: Any) -> Any:
    """Return the value of a setting in its own type, or refuse it; name is the rule's in errors."""
    kind, flag = field.type, setting_flag(name, field.name)
    try:
        if isinstance(value, bool) or (kind is str and not isinstance(value, str)):
            raise ValueError
        if kind is int and float(value) != int(float(value)):
            raise ValueError
        value = kind(float(value)) if kind is int else kind(value)
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"{name}.{field.name} needs {VALUE_KINDS[kind]}, got {value!r}; set it with {flag}") from None
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
