"""How a split distributes the rows, for people and programs."""

from typing import Any

import numpy as np

from moonfed.core.types import PartyInfo
from moonfed.data import Dataset
from moonfed.data.catalog.image_sets import CLASS_NAMES
from moonfed.data.population import PartyInfos
from moonfed.training.config import Config
from moonfed.training.party_rows import divide_data
from moonfed.training.resolve import resolve
from moonfed.training.setup import load_data

MAX_PARTIES_LISTED = 1000  # of a virtual population, the first


def describe_split(config: Config, data: Dataset | None = None) -> dict[str, Any]:
    """Split the rows as a config says and count them by party and class; the data is loaded if it is not given.

    Of a large virtual population the first parties are listed; the other figures are of all.
    """
    data = data or load_data(config.data)
    resolved = resolve(config, data)
    settings = resolved.data
    parts = divide_data(resolved, data).training
    sizes: list[int] = parts.totals.sizes.tolist()
    listed = len(sizes) if settings.population is None else min(len(sizes), MAX_PARTIES_LISTED)
    infos: list[PartyInfo] = PartyInfos(parts)[:listed]
    return {
        "dataset": settings.dataset,
        "partition": settings.partition,
        "parties": settings.parties,
        "beta": settings.beta,
        "seed": settings.partition_seed,
        "rows": parts.totals.rows,
        "test": len(data.test_labels),
        "sizes": sizes[:listed],
        "mean": float(np.mean(sizes)),
        "std": float(np.std(sizes)),
        "smallest": min(sizes),
        "largest": max(sizes),
        "party_names": list(data.party_names) if settings.partition == "natural" else None,
        "class_names": list(data.class_names or CLASS_NAMES.get(data.name, ())) or None,
        "class_counts": [list(info.class_counts) for info in infos],
    }
