"""What a round's row says of the models."""

import statistics
from typing import Any

import torch

from moonfed.core.tree import add
from moonfed.core.types import Snapshot, Upload, as_snapshot
from moonfed.data.dataset import Dataset
from moonfed.training.evaluate import Score, evaluate
from moonfed.training.trial import RunContext, Trial
from moonfed.training.validation_rows import judged_on


def score_round(trial: Trial, bench: RunContext, before: Snapshot, uploads: dict[int, Upload]) -> dict[str, Any]:
    """Score a trial that has just taken a round in; before is the global model the parties started from."""
    coming, asked = trial.round + 1, trial.config.run
    if coming % asked.evaluate_every and coming != trial.config.train.rounds:
        return {"accuracy": None, "test_loss": None}
    if trial.algorithm.local.own is not None:
        return _over_parties(own_scores(trial, bench))
    data = rows_to_judge_by(trial, bench)
    score = evaluate(bench.nets.frozen, data, trial.state.model)
    row = {
        "accuracy": score.accuracy,
        "test_loss": score.loss,
        "accuracy_by_class": score.by_class,
        "accuracy_at_party": at_parties(trial, score),
    }
    if asked.evaluate_parties:
        models = {party: Snapshot(add(before.weights, u.delta), u.buffers) for party, u in uploads.items()}
        scores = {str(k): evaluate(bench.nets.frozen, data, model).accuracy for k, model in models.items()}
        row["accuracy_of_party"] = scores
    return row


def rows_to_judge_by(trial: Trial, bench: RunContext) -> Dataset:
    """The data with the rows that models are judged on as its test rows: those held out, where some are."""
    return bench.data if trial.held is None else judged_on(bench.data, trial.held)


def own_scores(trial: Trial, bench: RunContext) -> list[Score]:
    """Score each party's own model, where that is what an algorithm trains."""
    own = trial.algorithm.local.own
    models = [as_snapshot(slots, own) for _, slots in sorted(trial.memory.items()) if own is not None]
    data = rows_to_judge_by(trial, bench)
    return [evaluate(bench.nets.frozen, data, model) for model in models or [trial.state.model]]


def final_evaluation(trial: Trial, bench: RunContext) -> dict[str, Any]:
    """Say all there is to say of the final model: accuracy by class and party, and the confusion of classes."""
    data = rows_to_judge_by(trial, bench)
    if trial.algorithm.local.own is not None:
        scores = own_scores(trial, bench)
        confusion = sum(score.confusion for score in scores[1:]) + scores[0].confusion
        named = _by_name(trial, data, scores) if len(scores) == len(data.party_names) else {}
        return _over_parties(scores) | {"rounds": trial.round, "confusion": confusion.tolist()} | named
    score = evaluate(bench.nets.frozen, data, trial.state.model)
    return {
        "rounds": trial.round,
        "accuracy": score.accuracy,
        "test_loss": score.loss,
        "accuracy_by_class": score.by_class,
        "accuracy_at_party": at_parties(trial, score),
        "confusion": score.confusion.tolist(),
    } | _by_name(trial, data, [score] * len(data.party_names))


def at_parties(trial: Trial, score: Score) -> list[float | None]:
    """Score a model at each party: on the party's own test rows where they are known, else by its class shares."""
    if score.parties is not None and trial.natural:
        return [score.on_own_rows(fact.party) for fact in trial.facts]
    return [score.at_party(fact) for fact in trial.facts]


def _by_name(trial: Trial, data: Dataset, scores: list[Score]) -> dict[str, Any]:
    """Say of each party that the data names: its rows, its own test rows, and how a model does on those."""
    if trial.config.data.partition != "natural" or data.party is None or data.test_party is None:
        return {}
    held = torch.bincount(data.party, minlength=len(data.party_names)).tolist()
    judged = torch.bincount(data.test_party, minlength=len(data.party_names)).tolist()
    return {
        "parties": [
            {
                "party": name,
                "rows": held[k] - (judged[k] if trial.held is not None else 0),  # those it trained on
                "test_rows": judged[k],
                "accuracy": scores[k].on_own_rows(k),
            }
            for k, name in enumerate(data.party_names)
        ]
    }


def _over_parties(scores: list[Score]) -> dict[str, Any]:
    """Mean over the parties' own models, with the population standard deviation, as the paper reports SOLO."""
    accuracies = [score.accuracy for score in scores]
    return {
        "accuracy": statistics.fmean(accuracies),
        "accuracy_std": statistics.pstdev(accuracies),
        "accuracy_by_party": accuracies,
        "test_loss": statistics.fmean(score.loss for score in scores),
    }
