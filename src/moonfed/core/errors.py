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
    near = nearest(name, names)
    hint = f"did you mean {near}? " if near else ""
    place = f" {where}" if where else ""
    return UserError(f'no {kind} "{name}"{place}; {hint}known: {", ".join(names)}')


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Find the known name that was probably meant: one that continues the word or is its beginning, else a similar one.

    >>> nearest("round", ["seconds", "rounds", "label"])
    'rounds'
    >>> nearest("seed", ["holdout_seed", "seeds"])
    'seeds'
    >>> nearest("nu", ["mu", "temperature"])
    'mu'
    """
    names = sorted(known, key=lambda other: (len(other), other))
    word = name.lower()
    if len(word) > 2:
        longer = [other for other in names if other.lower().startswith(word)]
        shorter = [other for other in reversed(names) if len(other) > 2 and word.startswith(other.lower())]
        if longer or shorter:
            return (longer or shorter)[0]
    lowered = {other.lower(): other for other in names}
    near = get_close_matches(word, list(lowered), n=1, cutoff=0.6 if len(word) > 3 else 0.5)
    return lowered[near[0]] if near else None
