"""Predictions of a run's model for new rows."""

import csv
import io
import logging
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from moonfed.api.classifier import BATCH, Classifier, classifier, run_facts
from moonfed.api.keywords import keyword_errors
from moonfed.data.readers import apply_encoding
from moonfed.storage.saved_model import Saved, read_saved

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Predictions:
    """The probability of each class for each row, with the rows' places and, where they are known, their classes."""

    places: list[str]
    classes: list[str]
    probabilities: NDArray[np.float64]  # [row, class]
    labels: list[str] | None  # "" where a row has none

    @property
    def predicted(self) -> list[str]:
        """The likeliest class of each row."""
        return [self.classes[k] for k in self.probabilities.argmax(1)]

    @property
    def accuracy(self) -> float | None:
        """The share of rows whose class was found, where the classes are known."""
        pairs = zip(self.predicted, self.labels or [], strict=False)
        right = [said == label for said, label in pairs if label]
        return float(np.mean(right)) if right else None

    def as_csv(self) -> str:
        """A line a row: its place, its class if that is known, what was predicted, and every probability."""
        text = io.StringIO()
        out = csv.writer(text, lineterminator="\n")
        known = [] if self.labels is None else [self.labels]
        out.writerow(["row", *["label"] * len(known), "predicted", *(f"p({name})" for name in self.classes)])
        for place, *values, row in zip(self.places, *known, self.predicted, self.probabilities.tolist(), strict=True):
            out.writerow([place, *values, *(f"{value:.6g}" for value in row)])
        return text.getvalue()

    def as_json(self) -> dict[str, Any]:
        """The object that predict --json prints."""
        rows = [
            {"row": place, "predicted": said, "probabilities": dict(zip(self.classes, row, strict=True))}
            for place, said, row in zip(self.places, self.predicted, self.probabilities.tolist(), strict=True)
        ]
        for row, label in zip(rows, self.labels or [], strict=False):
            row["label"] = label
        return {"accuracy": self.accuracy, "rows": rows}


@keyword_errors()
def predict(
    run: str | PathLike[str],
    data: str | PathLike[str],
    model: str | None = None,
    skip_bad_rows: bool = False,
) -> Predictions:
    """Predict the classes of the rows of a file or folder that is like the run's data, with the run's model."""
    return predict_rows(run, data, model, skip_bad_rows)


def predict_rows(
    run: str | PathLike[str], data: str | PathLike[str], model: str | None, skip_bad_rows: bool
) -> Predictions:
    """Do what predict does; errors name the flags of the command line."""
    saved = read_saved(Path(run), model)
    found = apply_encoding(saved.encoding, Path(data), skip_bad_rows)
    net = load_classifier(saved).model
    inputs, parts = found.inputs.long() if saved.like.words else found.inputs, list[torch.Tensor]()
    with torch.no_grad():
        for part in inputs.split(BATCH):
            parts.append(net(part).logits.double().softmax(1))
            logger.info("%s of %s rows predicted", f"{sum(map(len, parts)):,}", f"{len(found.inputs):,}")
    places = [found.rows.place(row) for row in range(len(found.inputs))]
    return Predictions(places, list(saved.encoding.classes), torch.cat(parts).numpy(), found.labels)


@keyword_errors()
def load(run: str | PathLike[str], model: str | None = None) -> Classifier:
    """Read the model of a run folder as a plain module; a custom encoder is named again, FILE.py:NAME."""
    return load_classifier(read_saved(Path(run), model))


def load_classifier(saved: Saved) -> Classifier:
    """Make a classifier of what a run folder keeps."""
    run = run_facts(saved.record.config, len(saved.record.rows))
    return classifier(saved.model, saved.tensors, saved.like, saved.encoding.classes, run)
