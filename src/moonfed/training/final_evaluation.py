"""The final model of a trial in full: by class, by party, and how good its probabilities are."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from moonfed.core.tree import numbers
from moonfed.data.dataset import Dataset
from moonfed.training.calibration import calibrated, fit_temperature
from moonfed.training.evaluate import (
    MAX_PARTIES_RECORDED,
    Score,
    at_parties,
    beside_personal,
    evaluate,
    over_parties,
    score_models,
)
from moonfed.training.metrics import ANY_CLASSES, Metrics, Probabilities, probability_metrics
from moonfed.training.records import RoundRecord
from moonfed.training.trial import RunContext, Trial


def final_evaluation(trial: Trial, context: RunContext, scores: Mapping[int, Score] | None = None) -> dict[str, Any]:
    """Describe the model that is kept: accuracy by class and party, confusion, and metrics of its probabilities.

    scores are those of the last round, with logits, if they are known.
    """
    data = trial.spec.evaluation
    if trial.algorithm.personal:
        scores = scores or score_models(trial, context, trial.personal_models())
        models = list(scores.values())
        probabilities = [_probabilities(score) for score in models]
        confusion = torch.stack([score.confusion for score in models]).sum(0)
        named = _by_party(trial, data, models, probabilities) if len(scores) == len(data.party_names) else {}
        rounds = {"rounds": trial.round, "confusion": numbers(confusion)}
        found = over_parties(trial, scores) | beside_personal(trial, context) | rounds
        return found | _mean_metrics(data, probabilities) | _positive(data) | named
    if not scores or (trial.best is not None and trial.best.round != trial.round):
        scores = score_models(trial, context, {0: trial.final_model})
    (score,) = scores.values()
    temperature = _temperature(trial, context) if trial.config.train.calibrate else None
    probabilities = [_probabilities(score, temperature)]
    parties = len(data.party_names) if len(data.party_names) <= MAX_PARTIES_RECORDED else 0
    return {
        "rounds": trial.round,
        **({} if trial.best is None else {"best_round": trial.best.round}),
        "accuracy": score.accuracy,
        "test_loss": score.loss,
        "accuracy_by_class": score.by_class,
        **at_parties(trial, score),
        "confusion": numbers(score.confusion),
        **_mean_metrics(data, probabilities),
        **_positive(data),
        **({} if temperature is None else _calibration(data, score, temperature)),
        **_by_party(trial, data, [score] * parties, probabilities * parties),
    }


def evaluation_of_sites(last: RoundRecord) -> dict[str, Any]:
    """Describe personal models that are at other machines: what their last round's record says of them."""
    names = {"accuracy", "accuracy_std", "accuracy_by_party", "test_loss", "global_accuracy"}
    return {"rounds": last["round"]} | {name: value for name, value in last.items() if name in names}


def _temperature(trial: Trial, context: RunContext) -> float:
    monitor = trial.spec.monitor
    assert monitor is not None, "a trial that is calibrated sets rows aside"
    score = evaluate(context.nets.inference, monitor, trial.final_model, keep_logits=True)
    assert score.logits is not None
    return fit_temperature(score.logits, monitor.test_labels)


def _probabilities(score: Score, temperature: float | None = None) -> Probabilities:
    assert score.logits is not None
    return calibrated(score.logits.double(), temperature).softmax(1).numpy()


def _mean_metrics(data: Dataset, probabilities: Sequence[Probabilities]) -> Metrics:
    """Compute the metrics of probabilities on all evaluation rows; of several models, the mean of each metric."""
    labels = data.test_labels.cpu().numpy()
    by_model = [probability_metrics(of_model, labels) for of_model in probabilities]
    return {name: _mean([metrics[name] for metrics in by_model]) for name in by_model[0]}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _positive(data: Dataset) -> dict[str, str]:
    """Name the positive class, if there are two classes."""
    if data.classes != 2:
        return {}
    return {"positive": data.class_names[1] if data.class_names else "1"}


def _calibration(data: Dataset, score: Score, temperature: float) -> dict[str, Any]:
    """Describe a calibration: its temperature, and the metrics without it."""
    before = _mean_metrics(data, [_probabilities(score)])
    return {"temperature": temperature, "uncalibrated": {name: before[name] for name in ANY_CLASSES}}


def _by_party(
    trial: Trial, data: Dataset, scores: Sequence[Score], probabilities: Sequence[Probabilities]
) -> dict[str, Any]:
    """Describe each party that the data names: its rows, and how good its model is on its own evaluation rows."""
    natural = trial.config.data.partition == "natural"
    if not (natural and trial.spec.parts and scores) or data.party is None or data.test_party is None:
        return {}  # also where the parties are other machines, whose rows are not here
    trained = torch.as_tensor(np.concatenate(list(trial.spec.parts))).to(data.party.device)
    training_rows = numbers(torch.bincount(data.party[trained], minlength=len(data.party_names)))
    owner, labels = data.test_party.cpu().numpy(), data.test_labels.cpu().numpy()
    by_party: dict[str, dict[str, Any]] = {}
    for k, name in enumerate(data.party_names):
        own = owner == k
        by_party[name] = {
            "training_rows": training_rows[k],
            "test_rows": int(own.sum()),
            "accuracy": scores[k].on_own_rows(k),
            **probability_metrics(probabilities[k][own], labels[own]),
        }
    return {"by_party": by_party}
