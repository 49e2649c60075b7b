"""What a source says while it works: how far it is, what it notices, and why it failed."""

from collections.abc import Callable
from typing import NamedTuple


class Watch(NamedTuple):
    """Two ears: moved(what, done, total, unit), with total 0 if nobody knows it; and said(line)."""

    moved: Callable[[str, int, int, str], None] = lambda what, done, total, unit: None
    said: Callable[[str], None] = lambda line: None


QUIET = Watch()


class SourceError(Exception):
    """Why a source did not give a data set, in one line; the next source may."""
