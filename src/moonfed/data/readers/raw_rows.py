"""The result of every reader: rows with labels, parties and locations, and the rows that are unusable."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from moonfed.core.errors import UserError

ROWS_IN_ERROR = 3  # bad rows that an error names
ROWS_IN_RECORD = 100  # bad rows that a run's config.json names

Content = Tensor | list[str] | dict[str, list[str | None]] | NDArray[Any]
logger = logging.getLogger(__name__)


class BadRow(NamedTuple):
    """An unusable row: where it is and why it is bad."""

    place: str
    reason: str

    def __str__(self) -> str:
        return f"{self.place} ({self.reason})"


@dataclass(frozen=True)
class RawRows:
    """Rows before encoding, in the order of the file or of the file names."""

    name: str  # of the file or folder
    kind: str  # one of the kinds in options.py
    content: Content
    labels: list[str] | None  # None if the data has no labels
    parties: list[str] | None
    place: Callable[[int], str]  # location of a row: "people.csv line 17", "cats/3.png"
    schema: dict[str, Any]  # what later rows must share: kinds of columns, shape of images
    bad: tuple[BadRow, ...] = ()  # rows that are not in content
    notes: tuple[str, ...] = ()  # remarks for the user, logged once the rows are accepted
    test: "RawRows | None" = None  # test rows that come with the data

    def __len__(self) -> int:
        content = self.content
        return len(next(iter(content.values()), [])) if isinstance(content, dict) else len(content)

    def take(self, rows: Sequence[int] | NDArray[np.int64]) -> "RawRows":
        """Keep only the given rows, in that order."""
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

    def without(self, reasons: dict[int, str]) -> "RawRows":
        """Remove rows and record them as bad, each with its reason."""
        if not reasons:
            return self
        kept = [row for row in range(len(self)) if row not in reasons]
        bad = tuple(BadRow(self.place(row), reason) for row, reason in sorted(reasons.items()))
        return replace(self.take(kept), bad=self.bad + bad)


def reject_bad_rows(rows: RawRows, skip: bool) -> RawRows:
    """Raise an error that names the first bad rows; with skip, log a warning and continue without them."""
    count, total = len(rows.bad), len(rows.bad) + len(rows)
    first = "; ".join(str(row) for row in rows.bad[:ROWS_IN_ERROR]) + ("; ..." if count > ROWS_IN_ERROR else "")
    if count and not skip:
        bad, them = ("a bad row", "it") if count == 1 else (f"{count:,} bad rows", "them")
        raise UserError(f"{rows.name} has {bad} of {total:,}: {first}; correct {them}, or use --skip-bad-rows")
    for note in rows.notes:
        logger.info("%s", note)
    if count:
        logger.warning("%s: skipped %s of %s rows: %s", rows.name, f"{count:,}", f"{total:,}", first)
    return rows


def ignored_notes(name: str, what: str, others: Sequence[str]) -> tuple[str, ...]:
    """Note which folders or splits beside the training and test rows are not read."""
    return tuple(f"{name}: the {what} {other} is ignored" for other in others)


def skipped_record(*parts: RawRows | None) -> dict[str, Any]:
    """Make the entry of config.json about skipped rows: their number, and the first of them."""
    bad = [row for part in parts if part is not None for row in part.bad]
    return {"count": len(bad), "rows": [{"place": row.place, "why": row.reason} for row in bad[:ROWS_IN_RECORD]]}
