"""Rows held out of the parties' training rows, for choosing settings without using the test set."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from moonfed.core.errors import UserError
from moonfed.core.seeds import generator
from moonfed.core.wording import counted
from moonfed.data.dataset import Dataset
from moonfed.data.partition import Rows


def hold_out(parts: Sequence[Rows], fraction: float, seed: int) -> tuple[list[Rows], list[Rows]]:
    """Hold a fraction of each party's rows out, drawn per party from the seed; the rest keeps its order."""
    training: list[Rows] = []
    held_out: list[Rows] = []
    for party, rows in enumerate(parts):
        count = max(1, int(fraction * len(rows) + 0.5)) if fraction else 0
        if count and count >= len(rows):
            raise UserError(
                f"party {party} has {counted(len(rows), 'row')}, too few to hold {fraction:g} of them out and train on "
                "the rest; use fewer parties, a larger --floor or another --validation"
            )
        chosen = np.zeros(len(rows), dtype=bool)
        chosen[generator(seed, "validation", party).permutation(len(rows))[:count]] = True
        training.append(rows[~chosen])
        held_out.append(rows[chosen])
    return training, held_out


def evaluated_on(data: Dataset, held_out: Sequence[Rows]) -> Dataset:
    """Replace the test rows by held-out rows, so that nothing can look at the test set."""
    rows = torch.as_tensor(np.concatenate(held_out)).to(data.labels.device)
    party = None if data.party is None else data.party[rows]
    return replace(data, test_inputs=data.inputs[rows], test_labels=data.labels[rows], test_party=party)
