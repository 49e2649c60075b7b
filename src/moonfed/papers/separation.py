"""Figure 2: how well the features of four models separate the classes of the test rows."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from moonfed.core.files import make_folder, read_tensors, write_tensors
from moonfed.core.tree import add
from moonfed.core.types import Snapshot, Tensors
from moonfed.papers.moon_figures import FOUR_MODELS
from moonfed.papers.recipe import Line
from moonfed.papers.recipe_trials import Key, ReproductionOptions
from moonfed.storage.features import features as encoder_features
from moonfed.storage.run_files import FINAL
from moonfed.training.config import Config
from moonfed.training.runner import make_jobs
from moonfed.training.setup import set_up
from moonfed.training.trial import RunContext, Trial

TEST_ROWS = 2000  # the first ones
PARTY = 0  # the party whose local model is used


def separation(line: Line, key: Key, options: ReproductionOptions) -> float:
    """Silhouette score of a model's features by class, from -1 to 1."""
    from sklearn.metrics import silhouette_score

    tensors = features(line, key, options)
    score: Any = silhouette_score(tensors["features"].numpy(), tensors["labels"].numpy())
    return float(score)


def features(line: Line, key: Key, options: ReproductionOptions) -> Tensors:
    """Features and labels of one of the four models; computed once, then read from a file beside the figure's table."""
    path = features_path(line, key, options)
    if path.exists():
        return read_tensors(path)[0]
    config = options.config(line.cell, key)
    config = config.model_copy(update={"run": config.run.model_copy(update={"engine": "sequential"})})
    context, (trial,) = set_up([config])
    model = _model(line.row, options.folder(line.cell, key), trial, context, config)
    labels = context.data.test_labels
    rows = torch.arange(min(TEST_ROWS, len(labels)), device=labels.device)
    tensors = {
        "features": encoder_features(context.nets.inference, model, context.data, rows),
        "labels": labels[rows].cpu(),
    }
    make_folder(path.parent)
    write_tensors(path, tensors, model=line.row, scale=options.scale)
    return tensors


def features_path(line: Line, key: Key, options: ReproductionOptions) -> Path:
    """File of a model's features, named by the model and its trial."""
    words = line.row.replace(",", "").replace("'", "").replace(" ", "-")
    return options.out / "fig2" / f"{words}-{options.folder(line.cell, key).name}.safetensors"


def _model(row: str, folder: Path, trial: Trial, context: RunContext, config: Config) -> Snapshot:
    tensors = read_tensors(folder / FINAL)[0]
    prefix = f"party{PARTY}/" if trial.algorithm.personal else ""
    shape = trial.state.model
    device = context.data.inputs.device
    weights, buffers = ({k: tensors[prefix + k].to(device) for k in part} for part in (shape.weights, shape.buffers))
    shared = Snapshot(weights, buffers)
    if row != FOUR_MODELS[-1]:
        return shared
    # A party's local model is the global one after that party's next round of local training.
    after = replace(trial, state=trial.state._replace(model=shared), round=config.train.rounds)
    job = next(job for job in make_jobs(after, context) if job.party == PARTY)
    (done,) = context.engine.run_cohort([job])
    return Snapshot(add(shared.weights, done.upload.delta), done.upload.buffers)
