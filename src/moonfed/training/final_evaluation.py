"""The final model of a trial in full: by class, by party, and how good its probabilities are."""

import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from moonfed.core.tree import numbers
from moonfed.data.dataset import Dataset
from moonfed.training.calibration import calibrated, fit_temperature
from moonfed.training.evaluate import Score, at_parties, evaluate, over_parties, score_models
from moonfed.training.metrics import ANY_CLASSES, Probabilities, probability_metrics
from moonfed.training.trial import RunContext, Trial


def final_evaluation(trial: Trial, context: RunContext, scores: Sequence[Score] = ()) -> dict[str, Any]:
    """Describe the model that is kept: accuracy by class and party, confusion, and metrics of its probabilities.

    scores are those of the last round, with logits, if they are known.
    """
    data = trial.spec.evaluation
    if trial.algorithm.personal:
        models = list(trial.personal_models().values())
        scores = scores or score_models(trial, context, models)
        confusion = torch.stack([score.confusion for score in scores]).sum(0)
        named = _by_name(trial, data, scores) if len(scores) == len(data.party_names) else {}
        rounds = {"rounds": trial.round, "confusion": numbers(confusion)}
        return over_parties(scores) | rounds | _describe_probabilities(data, scores) | named
    if not scores or (trial.best is not None and trial.best.round != trial.round):
        scores = score_models(trial, context, [trial.final_model])
    (score,) = scores
    temperature = _temperature(trial, context) if trial.config.train.calibrate else None
    return {
        "rounds": trial.round,
        **({} if trial.best is None else {"best_round": trial.best.round}),
        "accuracy": score.accuracy,
        "test_loss": score.loss,
        "accuracy_by_class": score.by_class,
        "accuracy_at_party": at_parties(trial, score),
        "confusion": numbers(score.confusion),
        **_describe_probabilities(data, scores, temperature),
    } | _by_name(trial, data, [score] * len(data.party_names), temperature)


def _temperature(trial: Trial, context: RunContext) -> float:
    monitor = trial.spec.monitor
    assert monitor is not None, "a trial that is calibrated sets rows aside"
    score = evaluate(context.nets.inference, monitor, trial.final_model, keep_logits=True)
    assert score.logits is not None
    return fit_temperature(score.logits, monitor.test_labels)


def _describe_probabilities(data: Dataset, scores: Sequence[Score], temperature: float | None = None) -> dict[str, Any]:
    """Compute the metrics of probabilities on all evaluation rows; of several models, the mean of each metric."""
    found = _metrics(data, scores, temperature)
    if data.classes == 2:
        found["positive"] = data.class_names[1] if data.class_names else "1"
    if temperature is not None:
        before = _metrics(data, scores, None)
        found |= {"temperature": temperature, "uncalibrated": {name: before[name] for name in ANY_CLASSES}}
    return found


def _metrics(data: Dataset, scores: Sequence[Score], temperature: float | None) -> dict[str, Any]:
    labels = data.test_labels.cpu().numpy()
    found = [probability_metrics(_probabilities(score, temperature), labels) for score in scores]
    return {name: _mean([metrics[name] for metrics in found]) for name in found[0]}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _probabilities(score: Score, temperature: float | None) -> Probabilities:
    assert score.logits is not None
    return calibrated(score.logits.double(), temperature).softmax(1).numpy()


def _by_name(trial: Trial, data: Dataset, scores: Sequence[Score], temperature: float | None = None) -> dict[str, Any]:
    """Describe each party that the data names: its rows, its evaluation rows, and how good the model is on those."""
    if trial.config.data.partition != "natural" or data.party is None or data.test_party is None:
        return {}
    trained = torch.as_tensor(np.concatenate(list(trial.spec.parts))).to(data.party.device)
    rows = numbers(torch.bincount(data.party[trained], minlength=len(data.party_names)))
    evaluated = numbers(torch.bincount(data.test_party, minlength=len(data.party_names)))
    owner, labels = data.test_party.cpu().numpy(), data.test_labels.cpu().numpy()
    parties: list[dict[str, Any]] = []
    by_party: dict[str, dict[str, Any]] = {}
    for k, name in enumerate(data.party_names):
        accuracy = scores[k].on_own_rows(k)
        parties.append({"party": name, "rows": rows[k], "test_rows": evaluated[k], "accuracy": accuracy})
        metrics = probability_metrics(_probabilities(scores[k], temperature)[owner == k], labels[owner == k])
        by_party[name] = {"rows": evaluated[k], "accuracy": accuracy, **metrics}
    return {"parties": parties, "by_party": by_party}
