"""What every reader gives: rows with their labels, whose they are and where they stand, and the rows that are bad."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from moonfed.core.errors import UserError

FIRST = 3  # bad rows that an error names
RECORDED = 100  # bad rows that a run's config.json names

Content = Tensor | list[str] | dict[str, list[str | None]] | NDArray[Any]


class Bad(NamedTuple):
    """A row that cannot be used: where it stands and why."""

    place: str
    why: str

    def __str__(self) -> str:
        return f"{self.place} ({self.why})"


@dataclass(frozen=True)
class Found:
    """Rows as they were read, in the order of the file or of the names."""

    name: str  # of the file or folder
    kind: str  # table, text, numbers, pictures or sound
    content: Content
    labels: list[str] | None  # None where nothing says what the rows are
    parties: list[str] | None
    place: Callable[[int], str]  # "people.csv line 17", "cats/3.png"
    scheme: dict[str, Any]  # what later rows must agree with: kinds of columns, the size of pictures
    bad: tuple[Bad, ...] = ()  # rows that are not in content
    notes: tuple[str, ...] = ()  # what else a user should hear
    test: "Found | None" = None  # where the data brings its own test rows

    def __len__(self) -> int:
        content = self.content
        return len(next(iter(content.values()), [])) if isinstance(content, dict) else len(content)

    def take(self, rows: Sequence[int] | NDArray[np.int64]) -> "Found":
        """Keep some rows, in that order."""
        kept = [int(row) for row in rows]

        def pick(values: Any) -> Any:
            return [values[row] for row in kept] if isinstance(values, list) else values[kept]

        content = self.content
        return replace(
            self,
            content={k: pick(v) for k, v in content.items()} if isinstance(content, dict) else pick(content),
            labels=None if self.labels is None else pick(self.labels),
            parties=None if self.parties is None else pick(self.parties),
            place=lambda row: self.place(kept[row]),
        )

    def without(self, bad: dict[int, str]) -> "Found":
        """Take rows out, and remember them with the reason."""
        if not bad:
            return self
        kept = [row for row in range(len(self)) if row not in bad]
        found = tuple(Bad(self.place(row), why) for row, why in sorted(bad.items()))
        return replace(self.take(kept), bad=self.bad + found)


def clear(found: Found, skip: bool) -> Found:
    """Refuse bad rows, the first few by name, or go on without them and note it."""
    if not found.bad:
        return found
    count = len(found.bad)
    first = "; ".join(str(bad) for bad in found.bad[:FIRST]) + ("; ..." if count > FIRST else "")
    total = count + len(found)
    if not skip:
        rows = "a bad row" if count == 1 else f"{count:,} bad rows"
        them = "it" if count == 1 else "them"
        raise UserError(f"{found.name} has {rows} of {total:,}: {first}; mend {them}, or go on with --skip-bad-rows")
    return replace(found, notes=(*found.notes, f"{found.name}: left out {count:,} of {total:,} rows: {first}"))


def left_out(name: str, what: str, others: Sequence[str]) -> tuple[str, ...]:
    """Note what lies beside the training and test rows and is not read."""
    return tuple(f"{name}: the {what} {other} is left out" for other in others)


def skipped(*parts: Found | None) -> dict[str, Any]:
    """Say for the record how many rows were left out, and where the first of them stand."""
    bad = [one for part in parts if part is not None for one in part.bad]
    return {"count": len(bad), "rows": [{"place": one.place, "why": one.why} for one in bad[:RECORDED]]}
