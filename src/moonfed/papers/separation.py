"""Figure 2: what four models make of the test rows, and how well their features separate the classes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from moonfed.core.files import make_folder, read_tensors, write_tensors
from moonfed.core.tree import add
from moonfed.core.types import Snapshot, Tensors
from moonfed.papers.moon_figures import FOUR_MODELS
from moonfed.papers.recipe import Line
from moonfed.papers.recipe_trials import Key, Terms
from moonfed.storage.features import features as seen_by_encoder
from moonfed.storage.run_folder import FINAL
from moonfed.training.config import Config
from moonfed.training.runner import make_jobs
from moonfed.training.setup import set_up
from moonfed.training.trial import RunContext, Trial

SHOWN = 2000  # test rows, the first ones
PARTY = 0  # whose model stands for a party's


def separation(line: Line, key: Key, terms: Terms) -> float:
    """The silhouette of a model's features by class, from -1 to 1."""
    from sklearn.metrics import silhouette_score

    held = features(line, key, terms)
    score: Any = silhouette_score(held["features"].numpy(), held["labels"].numpy())
    return float(score)


def features(line: Line, key: Key, terms: Terms) -> Tensors:
    """Find the features of one of the four models, kept beside the figure's table once they are known."""
    path = features_path(line, key, terms)
    if path.exists():
        return read_tensors(path)[0]
    config = terms.config(line.cell, key)
    config = config.model_copy(update={"run": config.run.model_copy(update={"engine": "sequential"})})
    context, (trial,) = set_up([config])
    model = _model(line.row, terms.folder(line.cell, key), trial, context, config)
    rows = torch.arange(min(SHOWN, len(context.data.test_labels)), device=context.data.test_labels.device)
    held = {
        "features": seen_by_encoder(context.nets.inference, model, context.data, rows),
        "labels": context.data.test_labels[rows].cpu(),
    }
    make_folder(path.parent)
    write_tensors(path, held, model=line.row, scale=terms.scale)
    return held


def features_path(line: Line, key: Key, terms: Terms) -> Path:
    """Name the file of a model's features by the model and the trial it comes from."""
    words = line.row.replace(",", "").replace("'", "").replace(" ", "-")
    return terms.out / "fig2" / f"{words}-{terms.folder(line.cell, key).name}.safetensors"


def _model(row: str, folder: Path, trial: Trial, context: RunContext, config: Config) -> Snapshot:
    tensors = read_tensors(folder / FINAL)[0]
    prefix = f"party{PARTY}/" if trial.algorithm.personal else ""
    shape = trial.state.model
    device = context.data.inputs.device
    weights, buffers = ({k: tensors[prefix + k].to(device) for k in part} for part in (shape.weights, shape.buffers))
    shared = Snapshot(weights, buffers)
    if row != FOUR_MODELS[-1]:
        return shared
    # A party's model is the shared one after that party's next round of local training.
    after = replace(trial, state=trial.state._replace(model=shared), round=config.train.rounds)
    job = next(job for job in make_jobs(after, context) if job.party == PARTY)
    (done,) = context.engine.run_cohort([job])
    return Snapshot(add(shared.weights, done.upload.delta), done.upload.buffers)
