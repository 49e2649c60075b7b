"""A run folder's model, built again without the rows it was trained on."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from moonfed.core.errors import UserError
from moonfed.core.files import read_json, read_tensors, short
from moonfed.core.regular_file import regular_size
from moonfed.core.types import Snapshot, Tensors
from moonfed.data import DATASETS, Dataset
from moonfed.data.augment import sample_inputs
from moonfed.data.readers.encoding import Encoding, encoding_of
from moonfed.models import Model
from moonfed.models.custom import CustomEncoder, is_custom, load_custom, measure_encoder
from moonfed.storage.features import as_model, final_temperature, model_of, network
from moonfed.storage.run_files import CONFIG, ENCODING, ROSTER
from moonfed.storage.run_record import RunRecord, read_run
from moonfed.training.network import build, net_spec
from moonfed.training.registry import preset_of
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


def read_saved(folder: Path, encoder: str | None = None, party: str | None = None) -> Saved:
    """Read the last model of a run, that of a party where each has its own, by name, number or a site's file.

    The code of a custom encoder is run only if it is named here.
    """
    if not (folder / CONFIG).is_file():
        raise UserError(f"{folder} holds no run: there is no {CONFIG} in it; moonfed runs lists what there is")
    record = read_run(folder)
    like = _like(folder, record)
    own = _own(record, like, encoder)
    if party is not None and party.endswith(".safetensors"):
        which, snapshot = _site_model(record, like, own, Path(party))
    else:
        which, snapshot = model_of(record, like, own, _party_number(record, like, party))
        which = which if party is None or party.isdecimal() else f"model of party {party}"
    config = resolve(record.config, like, own)
    model = build(net_spec(config, like, own))
    temperature = final_temperature(record)
    return Saved(
        record, config, which, model, snapshot.weights | snapshot.buffers, like, encoding_of(like), temperature
    )


def _site_model(record: RunRecord, like: Dataset, own: CustomEncoder | None, path: Path) -> tuple[str, Snapshot]:
    """Read the model that a site of a federation keeps to itself."""
    if not preset_of(record.config.algorithm.name, record.config.algorithm.server).personal:
        raise UserError(f"{record.folder} is of {record.algorithm}, which has no model for each site; omit --party")
    try:
        regular_size(path)
    except OSError as error:
        raise UserError(f"cannot read {path}: {short(error)}; --party needs a site's personal.safetensors") from None
    if not (record.folder / ROSTER).exists():
        raise UserError(f"{record.folder} is no federation and holds its parties' models; use --party with a name")
    tensors, facts = read_tensors(path)
    if facts.get("run") != read_json(record.folder / ROSTER).get("run"):
        raise UserError(f"{path} is not of the run in {record.folder}; name the file in memory/ of this run")
    return f"model of {path}", as_model(network(record.config, like, own), tensors, path)


def _party_number(record: RunRecord, like: Dataset, party: str | None) -> int | None:
    """Find the party whose model is asked for, by number or name, or refuse; None: the global model."""
    preset = preset_of(record.config.algorithm.name, record.config.algorithm.server)
    if not preset.personal:
        if party is not None and preset.sends_own_models:
            raise UserError(f"{record.folder} is of {record.algorithm}, which saves the consensus model; omit --party")
        if party is not None:
            raise UserError(f"{record.folder} is of {record.algorithm}, which has one global model; omit --party")
        return None
    if party is None and preset.local().companion is not None:
        return None
    natural = record.config.data.partition == "natural"
    names = [str(name) for name in (like.encoding or {}).get("parties", ())] if natural else []
    if (record.folder / ROSTER).exists():
        raise UserError(
            f"{record.folder} is of {record.algorithm}, whose models stay at the sites; name a site's file with "
            "--party, memory/RUN/personal.safetensors in the site's folder"
        )
    known = {str(k): k for k in range(len(names) or record.config.data.parties)} | {n: k for k, n in enumerate(names)}
    if party is None or party not in known:
        which = f"one of {', '.join(names)}" if names else f"a number from 0 to {len(known) - 1}"
        got = "" if party is None else f", got {party}"
        raise UserError(
            f"{record.folder} is of {record.algorithm}, which trains a model for each party; choose one with --party, "
            f"{which}{got}"
        )
    return known[party]


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
