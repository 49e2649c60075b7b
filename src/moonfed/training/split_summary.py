"""How a split distributes the rows, for people and programs."""

from typing import Any

import numpy as np

from moonfed.data import Dataset
from moonfed.data.catalog.image_sets import CLASS_NAMES
from moonfed.training.config import Config
from moonfed.training.resolve import resolve
from moonfed.training.setup import load_data
from moonfed.training.trial import class_counts, split_rows
from moonfed.training.validation_rows import divide_rows


def describe_split(config: Config, data: Dataset | None = None) -> dict[str, Any]:
    """Split the rows as a config says and count them by party and class; the data is loaded if it is not given."""
    data = data or load_data(config.data)
    resolved = resolve(config, data)
    settings = resolved.data
    parts = divide_rows(split_rows(resolved, data), settings, config.run.seed).training
    sizes = [len(part) for part in parts]
    return {
        "dataset": settings.dataset,
        "partition": settings.partition,
        "parties": settings.parties,
        "beta": settings.beta,
        "seed": settings.partition_seed,
        "rows": sum(sizes),
        "test": len(data.test_labels),
        "sizes": sizes,
        "mean": float(np.mean(sizes)),
        "std": float(np.std(sizes)),
        "party_names": list(data.party_names) if settings.partition == "natural" else None,
        "class_names": list(data.class_names or CLASS_NAMES.get(data.name, ())) or None,
        "class_counts": class_counts(data.labels.cpu().numpy(), parts, data.classes),
    }
