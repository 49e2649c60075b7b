"""A run folder's model, built again without the rows it was trained on."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from moonfed.core.errors import UserError
from moonfed.core.files import read_json
from moonfed.core.types import Tensors
from moonfed.data import DATASETS, Dataset
from moonfed.data.augment import sample_inputs
from moonfed.data.readers.encoding import Encoding, encoding_of
from moonfed.models import Model
from moonfed.models.custom import CustomEncoder, is_custom, load_custom, measure_encoder
from moonfed.storage.features import final_temperature, model_of
from moonfed.storage.run_files import CONFIG, ENCODING
from moonfed.storage.run_record import RunRecord, read_run
from moonfed.training.network import build, net_spec
from moonfed.training.registry import ALGORITHMS
from moonfed.training.resolve import ResolvedConfig, resolve

KINDS = {"uint8": torch.uint8, "float32": torch.float32, "float64": torch.float64, "int64": torch.int64}


@dataclass(frozen=True)
class Saved:
    """A trained model as a run folder keeps it."""

    record: RunRecord
    config: ResolvedConfig
    which: str  # the global model, or that of a round where the run is not finished
    model: Model
    tensors: Tensors
    like: Dataset  # of the shape, scale and classes of the data it was trained on, without its rows
    encoding: Encoding
    temperature: float | None = None  # by which logits are divided, if the run was calibrated


def read_saved(folder: Path, encoder: str | None = None) -> Saved:
    """Read the last model of a run; the code of a custom encoder is run only if it is named here."""
    if not (folder / CONFIG).is_file():
        raise UserError(f"{folder} holds no run: there is no {CONFIG} in it; moonfed runs lists what there is")
    record = read_run(folder)
    if ALGORITHMS[record.config.algorithm.name].personal:
        raise UserError(f"{folder} is of {record.algorithm}, which trains a model for each party and no global one")
    like = _like(folder, record)
    own = _own(record, like, encoder)
    which, snapshot = model_of(record, like, own)
    config = resolve(record.config, like, own)
    model = build(net_spec(config, like, own))
    temperature = final_temperature(record)
    return Saved(
        record, config, which, model, snapshot.weights | snapshot.buffers, like, encoding_of(like), temperature
    )


def _own(record: RunRecord, like: Dataset, encoder: str | None) -> CustomEncoder | None:
    """Take the encoder that the user names, if it is the one the run was made with."""
    name = record.config.model.model
    if not is_custom(name):
        if encoder is not None:
            raise UserError(f"{record.folder} was run with the encoder {name} of this package; omit --model")
        return None
    if encoder is None:
        raise UserError(
            f"{record.folder} used the custom encoder {name}; name its code with "
            "--model FILE.py:NAME (no code is run because a run folder names it)"
        )
    own = load_custom(encoder)
    if own.name.rpartition("@")[2] != name.rpartition("@")[2]:
        raise UserError(f"{record.folder} was run with {name}, {encoder} is now {own.name}: the file is another one")
    return measure_encoder(own, sample_inputs(like), like.words)


def _like(folder: Path, record: RunRecord) -> Dataset:
    """Make a data set of two empty rows that is like the one a run was trained on."""
    there = read_json(folder / CONFIG)
    inputs = there.get("inputs")
    if inputs is None and record.config.data.path is None:  # a run of before this was written down
        return DATASETS[record.config.data.dataset]()
    encoding = read_json(folder / ENCODING) if (folder / ENCODING).exists() else None
    try:
        rows = torch.zeros(2, *inputs["shape"], dtype=KINDS[inputs["kind"]])  # type: ignore[index]
        names = tuple(str(name) for name in (encoding or {}).get("classes", ()))
        labels = torch.zeros(2, dtype=torch.int64)
        scale: Any = [tuple(float(value) for value in inputs[name]) for name in ("mean", "std")]  # type: ignore[index]
        return Dataset(
            record.config.data.dataset,
            *(rows, labels, rows, labels),
            int(inputs["classes"]),  # type: ignore[index]
            *scale,
            words=int(inputs["words"]),  # type: ignore[index]
            class_names=names,
            encoding=encoding,
        )
    except (KeyError, TypeError, ValueError, RuntimeError):
        raise UserError(f"{folder / CONFIG} does not say what inputs the model takes; it is damaged") from None
