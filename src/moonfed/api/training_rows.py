"""Finds rows that a model was trained on among rows to predict.

A run folder keeps no trace of single rows: it would tell anyone who has it who was among them. The training data is
read again instead, where it still is what it was.
"""

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from moonfed.api.inputs import MEMORY
from moonfed.api.quiet import quiet
from moonfed.core.errors import UserError
from moonfed.data.dataset import Dataset
from moonfed.data.readers import EncodedRows, read_dataset
from moonfed.data.readers.options import IMAGES
from moonfed.storage.run_files import FEDERATION
from moonfed.storage.saved_model import Saved
from moonfed.training.party_rows import divide_data
from moonfed.training.user_data import reader_options

MAX_BYTES = 10_000_000  # a larger training file is read again only if it is the one to predict


def find_training_rows(saved: Saved, path: Path, found: EncodedRows) -> NDArray[np.bool_] | str:
    """Say of each row whether it equals a training row, or why that is not known."""
    data = _training_data(saved, path)
    if isinstance(data, str):
        return data
    parts, _, monitor = divide_data(saved.config, data)  # rows of monitor chose the model that is kept
    trained = set(_digests(data.inputs[torch.as_tensor(np.concatenate([parts.all_rows, *monitor]))]))
    images = saved.encoding.kind == IMAGES and isinstance(found.rows.content, np.ndarray)
    rows = torch.from_numpy(found.rows.content) if images else found.inputs  # images are not normalised in a data set
    return np.array([digest in trained for digest in _digests(rows)])


def _training_data(saved: Saved, path: Path) -> Dataset | str:
    """Read the data of a run again, if it is the same, or say why it is not known."""
    settings, folder = saved.record.config.data, saved.record.folder
    if (folder / FEDERATION).exists():
        return "the training rows are at the sites"
    if settings.path is None:
        return f"{settings.dataset} is not read again"
    source = Path(settings.path)
    if settings.path.endswith(MEMORY):
        return "the training rows were in memory"
    if not (os.path.isfile(source) or os.path.isdir(source)):
        return f"{source} is not there"
    if not _contains(source, path) and (source.is_dir() or source.stat().st_size > MAX_BYTES):
        return f"{source} is large (a folder, or over 10 MB) and not read again"
    try:
        with quiet("moonfed.data"):
            data = read_dataset(source, reader_options(settings))
    except UserError:
        data = None
    return data if data is not None and data.fingerprint == saved.record.data else f"{source} has changed since the run"


def _contains(source: Path, path: Path) -> bool:
    """Whether a path is the training data, or a part of it."""
    whole, part = os.path.realpath(source), os.path.realpath(path)
    return part == whole or part.startswith(whole + os.sep)


def _digests(rows: torch.Tensor) -> list[bytes]:
    array: NDArray[Any] = rows.cpu().reshape(len(rows), -1).contiguous().numpy()
    return [hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in array]
