"""The two ways a command can end badly, and the sentence for an unknown name."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """The user's input was wrong: one line that says what was needed, what came, what to do (exit code 2)."""


class RunFailed(Exception):
    """The run itself failed although its input was right (exit code 1)."""


def unknown(kind: str, name: str, known: Iterable[str], where: str = "") -> UserError:
    """Make the error for a name that is not known there, with the nearest known name as a suggestion."""
    names = sorted(known)
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}? " if near else ""
    place = f" {where}" if where else ""
    return UserError(f'no {kind} "{name}"{place}; {hint}known: {", ".join(names)}')
