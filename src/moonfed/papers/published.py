"""Published values and claims as data."""

import math
import tomllib
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

Place = tuple[str, str]  # row, column


@dataclass(frozen=True)
class Published:
    """A table or figure of a document with its printed values; accuracies are in per cent, as printed."""

    id: str
    document: str
    place: str
    says: str
    columns: tuple[str, ...] = ()
    values: dict[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])
    spread: dict[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])

    def value(self, place: Place) -> float | None:
        """Find the printed value of a row and column."""
        return self._at(self.values, place)

    def deviation(self, place: Place) -> float | None:
        """Find the standard deviation printed beside a value."""
        return self._at(self.spread, place)

    def places(self) -> list[Place]:
        """List the rows and columns with a printed value."""
        found = [(row, column) for row in self.values for column in self.columns]
        return [place for place in found if self.value(place) is not None]

    def _at(self, values: dict[str, tuple[float, ...]], place: Place) -> float | None:
        row, column = place
        if row not in values or column not in self.columns:
            return None
        value = values[row][self.columns.index(column)]
        return None if math.isnan(value) else value


@dataclass(frozen=True)
class Claim:
    """A claim that a document makes in words, and the recipes that test it."""

    document: str
    place: str
    text: str
    recipes: tuple[str, ...]


@dataclass(frozen=True)
class Library:
    """All published data: documents by name, the published setting, tables by id, claims."""

    documents: dict[str, str]
    setting: dict[str, Any]
    tables: dict[str, Published]
    claims: tuple[Claim, ...]


@cache
def library() -> Library:
    """Read the published data that ships with the package."""
    text = files("moonfed.papers").joinpath("published.toml").read_text(encoding="utf-8")
    raw = tomllib.loads(text)
    documents, setting, claims = raw.pop("documents"), raw.pop("setting"), raw.pop("claim")
    return Library(
        documents,
        setting,
        {id: _table(id, entry) for id, entry in raw.items()},
        tuple(Claim(c["document"], c["place"], c["text"], tuple(c["recipes"])) for c in claims),
    )


def _table(id: str, entry: dict[str, Any]) -> Published:
    rows = {kind: {row: tuple(map(float, values)) for row, values in entry.get(kind, {}).items()} for kind in KINDS}
    words = entry["document"], entry["place"], entry["says"]
    return Published(id, *words, tuple(entry.get("columns", ())), rows["values"], rows["spread"])


KINDS = ("values", "spread")
