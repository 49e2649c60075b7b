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
from moonfed.api.keywords import READ, keyword_errors
from moonfed.api.row_ids import row_ids
from moonfed.api.training_rows import find_training_rows
from moonfed.data.readers import apply_encoding
from moonfed.storage.saved_model import Saved, read_saved
from moonfed.training.calibration import calibrated
from moonfed.training.metrics import Metrics, metrics_text, probability_metrics

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Predictions:
    """The probability of each class for each row, with the rows' places and, where they are known, their classes."""

    places: list[str]
    classes: list[str]
    probabilities: NDArray[np.float64]  # [row, class]
    labels: list[str] | None  # "" where a row has none
    ids: list[str] | None = None  # where a column of identifiers is named
    id_column: str = "id"
    trained: NDArray[np.bool_] | str = ""  # whether each row equals a training row, or why that is not known

    @property
    def predicted(self) -> list[str]:
        """The likeliest class of each row."""
        return [self.classes[k] for k in self.probabilities.argmax(1)]

    @property
    def accuracy(self) -> float | None:
        """The share of rows whose class was found, where the classes are known."""
        return self._accuracy(np.ones(len(self.places), dtype=bool))

    @property
    def training_rows(self) -> int | None:
        """The number of rows that equal a training row; None if that is not known."""
        return None if isinstance(self.trained, str) else int(self.trained.sum())

    @property
    def accuracy_on_new_rows(self) -> float | None:
        """The accuracy on rows that the model was not trained on, where both are known."""
        return None if isinstance(self.trained, str) else self._accuracy(~self.trained)

    def _accuracy(self, counted: NDArray[np.bool_]) -> float | None:
        rows = zip(self.predicted, self.labels or [], counted, strict=False)
        right = [said == label for said, label, counts in rows if label and counts]
        return float(np.mean(right)) if right else None

    @property
    def metrics(self) -> Metrics:
        """How good the probabilities are on the rows with a known class: log loss, Brier score, ECE and so on.

        Empty if no row has one.
        """
        return self._metrics(np.ones(len(self.places), dtype=bool))

    @property
    def metrics_on_new_rows(self) -> Metrics:
        """The same on rows that the model was not trained on; empty if that is not known."""
        return {} if isinstance(self.trained, str) else self._metrics(~self.trained)

    def _metrics(self, counted: NDArray[np.bool_]) -> Metrics:
        place = {name: k for k, name in enumerate(self.classes)}
        labels = np.array([place.get(label, -1) for label in self.labels or [""] * len(self.places)], dtype=np.int64)
        chosen = counted & (labels >= 0)
        return probability_metrics(self.probabilities[chosen], labels[chosen]) if chosen.any() else {}

    def as_csv(self) -> str:
        """One line per row: id and class if they are known, place, prediction, and the probability of each class."""
        text = io.StringIO()
        out = csv.writer(text, lineterminator="\n")
        columns = {} if self.ids is None else {self.id_column: self.ids}
        columns |= {"row": self.places} | ({} if self.labels is None else {"label": self.labels})
        columns |= {"predicted": self.predicted}
        out.writerow([*columns, *(f"p({name})" for name in self.classes)])
        for *values, row in zip(*columns.values(), self.probabilities.tolist(), strict=True):
            out.writerow([*values, *(f"{value:.6g}" for value in row)])
        return text.getvalue()

    def as_json(self) -> dict[str, Any]:
        """The object that predict --json prints."""
        rows: list[dict[str, Any]] = [
            {"row": place, "predicted": said, "probabilities": dict(zip(self.classes, row, strict=True))}
            for place, said, row in zip(self.places, self.predicted, self.probabilities.tolist(), strict=True)
        ]
        trained = None if isinstance(self.trained, str) else self.trained.tolist()
        for name, values in (("label", self.labels), ("id", self.ids), ("training_row", trained)):
            for row, value in zip(rows, values or [], strict=False):
                row[name] = value
        new = {"accuracy_on_new_rows": self.accuracy_on_new_rows, "metrics_on_new_rows": self.metrics_on_new_rows}
        counts = {"metrics": self.metrics, "training_rows": self.training_rows, **new}
        return {"accuracy": self.accuracy, **counts, "rows": rows}

    def summary(self) -> str:
        """Say in one line how many rows were predicted, how many correctly, and how many the model was trained on."""
        right = "" if self.accuracy is None else f", {self.accuracy:.1%} of them correctly"
        line = f"{len(self.places):,} rows predicted{right}"
        if isinstance(self.trained, str):
            return f"{line}; whether they were training rows is not known: {self.trained}" if right else line
        if not self.training_rows:
            return line
        new = len(self.places) - self.training_rows
        right = self.accuracy_on_new_rows
        others = "" if right is None else f" ({right:.1%} of the other {new:,} correctly)"
        return f"{line}; {self.training_rows:,} of them were training rows{others}"

    def metrics_summary(self) -> str:
        """Say in one line how good the probabilities are, on rows that are new to the model where there are others.

        Empty if no such row has a known class.
        """
        if self.training_rows:
            return f"on the other rows: {metrics_text(self.metrics_on_new_rows)}" if self.metrics_on_new_rows else ""
        return metrics_text(self.metrics)


@keyword_errors(READ)
def predict(
    run: str | PathLike[str],
    data: str | PathLike[str],
    model: str | None = None,
    skip_bad_rows: bool = False,
    id: str | None = None,
    party: str | int | None = None,
) -> Predictions:
    """Predict the classes of the rows of a file or folder that is like the run's data, with the run's model.

    id names a column of identifiers to carry along; the model need not know it. party chooses a party's own model,
    by name or number, where the run's algorithm trains one for each.
    """
    return predict_rows(run, data, model, skip_bad_rows, id, None if party is None else str(party))


def predict_rows(
    run: str | PathLike[str],
    data: str | PathLike[str],
    model: str | None,
    skip_bad_rows: bool,
    id: str | None = None,
    party: str | None = None,
) -> Predictions:
    """Do what predict does; errors name the flags of the command line."""
    saved = read_saved(Path(run), model, party)
    found = apply_encoding(saved.encoding, Path(data), skip_bad_rows)
    places = [found.rows.place(row) for row in range(len(found.inputs))]
    ids = None if id is None else row_ids(Path(data), id, places)
    made = load_classifier(saved)
    inputs, parts = found.inputs.long() if saved.like.words else found.inputs, list[torch.Tensor]()
    with torch.no_grad():
        for part in inputs.split(BATCH):
            parts.append(calibrated(made.model(part).logits.double(), made.temperature).softmax(1))
            logger.info("%s of %s rows predicted", f"{sum(map(len, parts)):,}", f"{len(found.inputs):,}")
    trained = find_training_rows(saved, Path(data), found)
    classes, probabilities = list(saved.encoding.classes), torch.cat(parts).numpy()
    return Predictions(places, classes, probabilities, found.labels, ids, id or "id", trained)


@keyword_errors(READ)
def load(run: str | PathLike[str], model: str | None = None, party: str | int | None = None) -> Classifier:
    """Read the model of a run folder as a plain module; a custom encoder is named again, FILE.py:NAME.

    party chooses a party's own model, by name or number, where the run's algorithm trains one for each.
    """
    return load_classifier(read_saved(Path(run), model, None if party is None else str(party)))


def load_classifier(saved: Saved) -> Classifier:
    """Make a classifier of what a run folder keeps."""
    run = run_facts(saved.record.config, len(saved.record.rows))
    return classifier(saved.model, saved.tensors, saved.like, saved.encoding.classes, run, saved.temperature)
