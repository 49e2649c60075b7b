"""How good probabilities are: log loss, Brier score, calibration error; for two classes AUC, sensitivity, specificity.

Every function takes probabilities [row, class] and labels [row] as whole numbers. Of two classes the second is the
positive one. A figure that the rows do not define is None, for example the AUC where all rows are of one class.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Probabilities = NDArray[np.float64]
Labels = NDArray[np.int64]
Metrics = dict[str, float | None]

CALIBRATION_BINS = 15  # of equal width, over the probability of the predicted class (Guo et al. 2017)
ANY_CLASSES, TWO_CLASSES = ("log_loss", "brier", "ece"), ("auc", "sensitivity", "specificity")
METRIC_NAMES = {
    "log_loss": "log loss",
    "brier": "Brier score",
    "ece": "ECE",
    "auc": "AUC",
    "sensitivity": "sensitivity",
    "specificity": "specificity",
}


def probability_metrics(probabilities: Probabilities, labels: Labels) -> Metrics:
    """Compute every figure that the number of classes allows; all are None without rows."""
    metrics: Metrics = dict.fromkeys(ANY_CLASSES)
    if len(labels):
        figures = log_loss(probabilities, labels), brier(probabilities, labels), ece(probabilities, labels)
        metrics = dict(zip(ANY_CLASSES, figures, strict=True))
    if probabilities.shape[1] != 2:
        return metrics
    rates = sensitivity(probabilities, labels), specificity(probabilities, labels)
    return metrics | dict(zip(TWO_CLASSES, (auc(probabilities, labels), *rates), strict=True))


def log_loss(probabilities: Probabilities, labels: Labels) -> float:
    """Compute the mean of -log p of the true class; p is at least the machine epsilon."""
    own = probabilities[np.arange(len(labels)), labels]
    return float(-np.log(np.maximum(own, np.finfo(np.float64).eps)).mean())


def brier(probabilities: Probabilities, labels: Labels) -> float:
    """Compute the mean squared error of the probabilities, summed over classes; of two classes the positive one's.

    It is 0 to 1 for two classes and 0 to 2 for more, as in scikit-learn.
    """
    squares = (probabilities - np.eye(probabilities.shape[1])[labels]) ** 2
    return float((squares[:, 1] if probabilities.shape[1] == 2 else squares.sum(1)).mean())


def ece(probabilities: Probabilities, labels: Labels, bins: int = CALIBRATION_BINS) -> float:
    """Compute the expected calibration error: |accuracy - mean confidence| of each bin, weighted by its rows."""
    confidence, right = probabilities.max(1), probabilities.argmax(1) == labels
    place = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)  # bins (low, high]
    gaps = np.bincount(place, right - confidence, minlength=bins)
    return float(np.abs(gaps).sum() / len(labels))


def auc(probabilities: Probabilities, labels: Labels) -> float | None:
    """Compute the area under the ROC curve: how often a positive row has a higher probability than a negative one."""
    positive = labels == 1
    pairs = int(positive.sum()) * int((~positive).sum())
    if not pairs:
        return None
    _, place, count = np.unique(probabilities[:, 1], return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[place]  # equal probabilities share the mean of their ranks
    above = rank[positive].sum() - positive.sum() * (positive.sum() + 1) / 2
    return float(above / pairs)


def sensitivity(probabilities: Probabilities, labels: Labels) -> float | None:
    """Compute the share of positive rows that are predicted positive (recall)."""
    return _recall(probabilities, labels, 1)


def specificity(probabilities: Probabilities, labels: Labels) -> float | None:
    """Compute the share of negative rows that are predicted negative."""
    return _recall(probabilities, labels, 0)


def _recall(probabilities: Probabilities, labels: Labels, of_class: int) -> float | None:
    """Compute the share of a class's rows that are predicted as that class; None without rows."""
    rows = labels == of_class
    return float((probabilities[rows].argmax(1) == of_class).mean()) if rows.any() else None


def metrics_text(metrics: dict[str, Any]) -> str:
    """Say the figures in one line: log loss 0.412, Brier score 0.130, ECE 0.041."""
    known = {name: metrics[key] for key, name in METRIC_NAMES.items() if metrics.get(key) is not None}
    return ", ".join(f"{name} {value:.3f}" for name, value in known.items())
