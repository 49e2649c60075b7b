"""Rows set aside of the parties' training rows: to choose settings without the test set, and to watch training."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from moonfed.core.errors import UserError
from moonfed.core.seeds import generator
from moonfed.core.wording import counted
from moonfed.data.dataset import Dataset
from moonfed.data.partition import Rows
from moonfed.training.settings import DataSettings


class DividedRows(NamedTuple):
    """The rows of each party: those it trains on, and those set aside."""

    training: list[Rows]
    validation: list[Rows]  # to evaluate on instead of the test rows
    monitor: list[Rows]  # for early stopping and calibration


def divide_rows(parts: Sequence[Rows], settings: DataSettings, seed: int) -> DividedRows:
    """Set rows of each party aside: first those of --validation, of the rest those of --monitor."""
    training, validation = hold_out(parts, settings.validation, seed)
    fraction = settings.monitor or 0.0
    if not fraction:
        return DividedRows(training, validation, [])
    training, monitor = zip(*(_draw(k, rows, fraction, seed) for k, rows in enumerate(training)), strict=True)
    if not any(map(len, monitor)):
        raise UserError(
            f"no party has enough rows to set {fraction:g} of them aside for early stopping or calibration; "
            "use a larger --monitor, or fewer parties"
        )
    return DividedRows(list(training), validation, list(monitor))


def rows_left(rows: int, settings: DataSettings) -> int:
    """Return how many of a party's rows it trains on."""
    left = rows - (_validation_count(rows, settings.validation) if settings.validation else 0)
    return left - _monitor_count(left, settings.monitor or 0.0)


def _validation_count(rows: int, fraction: float) -> int:
    return max(1, int(fraction * rows + 0.5))


def _monitor_count(rows: int, fraction: float) -> int:
    """A party with few rows sets none aside: the others do."""
    return min(int(fraction * rows + 0.5), max(0, rows - 1))


def _draw(party: int, rows: Rows, fraction: float, seed: int) -> tuple[Rows, Rows]:
    return _take(rows, _monitor_count(len(rows), fraction), seed, "monitor", party)


def _take(rows: Rows, count: int, seed: int, purpose: str, party: int) -> tuple[Rows, Rows]:
    """Draw some of a party's rows; the rest keeps its order."""
    chosen = np.zeros(len(rows), dtype=bool)
    chosen[generator(seed, purpose, party).permutation(len(rows))[:count]] = True
    return rows[~chosen], rows[chosen]


def hold_out(parts: Sequence[Rows], fraction: float, seed: int) -> tuple[list[Rows], list[Rows]]:
    """Hold a fraction of each party's rows out, drawn per party from the seed; the rest keeps its order."""
    if not fraction:
        return list(parts), [rows[:0] for rows in parts]
    training: list[Rows] = []
    held_out: list[Rows] = []
    for party, rows in enumerate(parts):
        count = _validation_count(len(rows), fraction)
        if count >= len(rows):
            raise UserError(
                f"party {party} has {counted(len(rows), 'row')}, too few to hold {fraction:g} of them out and train on "
                "the rest; use fewer parties, a larger --floor or another --validation"
            )
        kept, held = _take(rows, count, seed, "validation", party)
        training.append(kept)
        held_out.append(held)
    return training, held_out


def evaluated_on(data: Dataset, held_out: Sequence[Rows]) -> Dataset:
    """Replace the test rows by held-out rows, so that nothing can look at the test set."""
    rows = torch.as_tensor(np.concatenate(held_out)).to(data.labels.device)
    party = None if data.party is None else data.party[rows]
    return replace(data, test_inputs=data.inputs[rows], test_labels=data.labels[rows], test_party=party)
