"""How good a model is on the rows it is evaluated on: the test rows, or rows held out of training."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from moonfed.core.tree import add, batches, numbers
from moonfed.core.types import PartyInfo, Snapshot, Upload
from moonfed.data.augment import normalise
from moonfed.data.dataset import Dataset
from moonfed.engines.devices import rows_per_forward
from moonfed.training.trial import RunContext, Trial


@dataclass(frozen=True)
class Score:
    """A model's predictions on the evaluation rows, counted."""

    confusion: Tensor  # int64 [true class, predicted class], on the CPU
    loss: float  # mean cross-entropy
    parties: Tensor | None = None  # int64 [party, 2]: test rows that are the party's own, and right ones among them
    logits: Tensor | None = None  # [row, class], on the CPU, if they were asked for

    @property
    def accuracy(self) -> float:
        """Top-1 accuracy."""
        return int(self.confusion.diagonal().sum()) / int(self.confusion.sum())

    @property
    def by_class(self) -> list[float]:
        """Accuracy on the test rows of each class; 0 for a class without any."""
        return numbers(self.confusion.diagonal() / self.confusion.sum(1).clamp(min=1).double())

    def on_own_rows(self, party: int) -> float | None:
        """The accuracy on a party's own test rows; None if it has none."""
        assert self.parties is not None
        rows, right = numbers(self.parties[party])
        return right / rows if rows else None

    def at_party(self, info: PartyInfo) -> float:
        """The accuracy that a party would see on test rows with the class shares of its own rows."""
        return sum(n * right for n, right in zip(info.class_counts, self.by_class, strict=True)) / info.rows


@torch.no_grad()
def evaluate(net: nn.Module, data: Dataset, model: Snapshot, keep_logits: bool = False) -> Score:
    """Score a model on the whole test set, in eval mode."""
    dtype = next(iter(model.weights.values())).dtype
    confusion = torch.zeros(data.classes**2, dtype=torch.int64, device=data.test_labels.device)
    loss = torch.zeros((), dtype=torch.float64, device=data.test_labels.device)
    whose = torch.zeros(len(data.party_names) * 2, dtype=torch.int64, device=data.test_labels.device)
    batch = rows_per_forward(sum(w.numel() for w in model.weights.values()), data.test_inputs.device)
    rows = list(zip(batches(data.test_inputs, batch), batches(data.test_labels, batch), strict=True))
    parties = [None] * len(rows) if data.test_party is None else batches(data.test_party, batch)
    logits: list[Tensor] = []
    for (pixels, y), party in zip(rows, parties, strict=True):
        out = functional_call(net, (model.weights, model.buffers), (normalise(data, pixels, dtype),))
        says = out.logits.argmax(1)
        confusion += torch.bincount(y * data.classes + says, minlength=data.classes**2)
        if party is not None:
            whose += torch.bincount(party * 2 + (says == y), minlength=len(whose))
        loss += cross_entropy(out.logits, y, reduction="sum")
        if keep_logits:
            logits.append(out.logits.cpu())
    by_party = None
    if data.test_party is not None:
        wrong_right = whose.view(-1, 2).cpu()
        by_party = torch.stack([wrong_right.sum(1), wrong_right[:, 1]], 1)
    square, mean = confusion.view(data.classes, data.classes).cpu(), float(loss) / len(data.test_labels)
    return Score(square, mean, by_party, torch.cat(logits) if keep_logits else None)


def evaluate_round(
    trial: Trial, context: RunContext, before: Snapshot, uploads: dict[int, Upload]
) -> tuple[dict[str, Any], list[Score]]:
    """Evaluate a trial after a round, if it is due; without scores it was not.

    before is the global model that the parties started from.
    """
    run, last = trial.config.run, trial.round == trial.config.train.rounds
    if trial.round % run.evaluate_every and not last:
        return {"accuracy": None, "test_loss": None}, []
    models = list(trial.personal_models().values()) if trial.algorithm.personal else []
    scores = score_models(trial, context, models or [trial.state.model], keep_logits=last)
    if trial.algorithm.personal:
        return over_parties(scores), scores
    (score,) = scores
    record: dict[str, Any] = {
        "accuracy": score.accuracy,
        "test_loss": score.loss,
        "accuracy_by_class": score.by_class,
        "accuracy_at_party": at_parties(trial, score),
    }
    net, data = context.nets.inference, trial.spec.evaluation
    if trial.spec.monitor is not None:
        record["monitor_loss"] = evaluate(net, trial.spec.monitor, trial.state.model).loss
    if run.evaluate_parties:
        uploaded = {party: Snapshot(add(before.weights, u.delta), u.buffers) for party, u in uploads.items()}
        record["accuracy_of_party"] = {str(k): evaluate(net, data, model).accuracy for k, model in uploaded.items()}
    return record, scores


def score_models(
    trial: Trial, context: RunContext, models: Sequence[Snapshot], keep_logits: bool = True
) -> list[Score]:
    """Score models on a trial's evaluation rows."""
    return [evaluate(context.nets.inference, trial.spec.evaluation, model, keep_logits) for model in models]


def at_parties(trial: Trial, score: Score) -> list[float | None]:
    """Score a model at each party: on the party's own rows where they are known, else by its class shares."""
    if score.parties is not None and trial.spec.party_names:
        return [score.on_own_rows(info.party) for info in trial.spec.infos]
    return [score.at_party(info) for info in trial.spec.infos]


def over_parties(scores: Sequence[Score]) -> dict[str, Any]:
    """Average over the parties' own models, with the population standard deviation, as the paper reports SOLO."""
    accuracies = [score.accuracy for score in scores]
    return {
        "accuracy": statistics.fmean(accuracies),
        "accuracy_std": statistics.pstdev(accuracies),
        "accuracy_by_party": accuracies,
        "test_loss": statistics.fmean(score.loss for score in scores),
    }
