"""Rows held out of the parties' own training rows, for choosing settings without a look at the test set."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from moonfed.core.errors import UserError
from moonfed.core.seeds import generator
from moonfed.data.dataset import Dataset
from moonfed.data.partition import Rows


def hold_out(parts: Sequence[Rows], share: float, seed: int) -> tuple[list[Rows], list[Rows]]:
    """Set a share of each party's rows aside, drawn party by party from the seed; the rest keeps its order."""
    kept: list[Rows] = []
    held: list[Rows] = []
    for party, rows in enumerate(parts):
        count = max(1, int(share * len(rows) + 0.5)) if share else 0
        if count and count >= len(rows):
            raise UserError(
                f"party {party} has {len(rows)} rows, too few to hold {share:g} of them out and train on the rest; "
                "use fewer parties, a larger --floor or another --validation"
            )
        aside = np.zeros(len(rows), dtype=bool)
        aside[generator(seed, "validation", party).permutation(len(rows))[:count]] = True
        kept.append(rows[~aside])
        held.append(rows[aside])
    return kept, held


def judged_on(data: Dataset, held: Sequence[Rows]) -> Dataset:
    """Put held-out rows in the place of the test rows, so that nothing can look at those."""
    rows = torch.from_numpy(np.concatenate(held)).to(data.labels.device)
    party = None if data.party is None else data.party[rows]
    return replace(data, test_inputs=data.inputs[rows], test_labels=data.labels[rows], test_party=party)
