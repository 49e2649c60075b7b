"""How good a model is on the rows it is evaluated on: the test rows, or rows held out of training."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from moonfed.core.algorithm import sends_own_models
from moonfed.core.phase import Query
from moonfed.core.private_tensors import public_part
from moonfed.core.tree import add, norm, numbers, sub
from moonfed.core.types import Outputs, PartyInfo, Snapshot, Tensors, Upload
from moonfed.data.dataset import Dataset
from moonfed.engines.query import sum_batches
from moonfed.training.trial import RunContext, Trial

MAX_PARTIES_RECORDED = 1000  # of a population, with an accuracy at each of them
MAX_TEST_ROWS = 1 << 40  # of a site: sums of counts must not overflow


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

    @cached_property
    def rows_by_class(self) -> list[int]:
        """Count the test rows of each class."""
        return numbers(self.confusion.sum(1))

    @cached_property
    def by_class(self) -> list[float]:
        """Accuracy on the test rows of each class; 0 for a class without any."""
        return numbers(self.confusion.diagonal() / self.confusion.sum(1).clamp(min=1).double())

    def on_own_rows(self, party: int) -> float | None:
        """The accuracy on a party's own test rows; None if it has none."""
        assert self.parties is not None
        rows, right = numbers(self.parties[party])
        return right / rows if rows else None

    def at_party(self, info: PartyInfo) -> float | None:
        """The accuracy that a party would see on test rows with the class shares of its own rows.

        Classes without test rows do not count; None if no class of the party has any.
        """
        counts = [n if rows else 0 for n, rows in zip(info.class_counts, self.rows_by_class, strict=True)]
        rows = sum(counts)
        return sum(n * right for n, right in zip(counts, self.by_class, strict=True)) / rows if rows else None


@dataclass(frozen=True)
class ScoreQuery(Query):
    """Confusion and loss, and each party's wrong and right rows; the label of a row is party * classes + class."""

    name = "score"
    parties: int = 0  # that the rows name; without any, a label is a class

    def map(self, out: Outputs, y: Tensor) -> Tensors:
        """Count a batch's predictions."""
        classes, says = out.logits.shape[1], out.logits.argmax(1)
        truth = y % classes
        whose = torch.bincount(y // classes * 2 + (says == truth), minlength=2 * max(1, self.parties))
        return {
            "confusion": torch.bincount(truth * classes + says, minlength=classes**2).view(classes, classes),
            "loss": cross_entropy(out.logits, truth, reduction="sum").double(),
            "by_party": whose.view(-1, 2),  # [party, 2]: wrong, right
        }

    def contradiction(self, total: Tensors, info: PartyInfo) -> str | None:
        """Compare the counts with each other; how many test rows a party has is not known."""
        counts = total["confusion"], total["by_party"]
        outside = any(int(count.min()) < 0 or int(count.max()) > MAX_TEST_ROWS for count in counts)  # sums could wrap
        rows, right = (int(counts[0].sum()), int(counts[0].diagonal().sum()))
        if outside or not 0 < rows <= MAX_TEST_ROWS or float(total["loss"]) < 0:
            return "its counts or its loss are negative, zero or too large"
        wrong_right = numbers(counts[1].sum(0))
        return None if wrong_right == [rows - right, right] else "its confusion and its right rows do not agree"


def evaluate(net: nn.Module, data: Dataset, model: Snapshot, keep_logits: bool = False, by_party: bool = True) -> Score:
    """Score a model on the whole test set, in eval mode; if the data names the parties of rows, by party too."""
    named = data.test_party is not None and by_party
    query, logits = ScoreQuery(len(data.party_names) if named else 0), list[Tensor]()

    def of_batch(out: Outputs, y: Tensor) -> Tensors:
        if keep_logits:
            logits.append(out.logits.cpu())
        return query.map(out, y)

    labels = data.test_labels
    if named and data.test_party is not None:
        labels = data.test_party * data.classes + labels
    score = score_of(sum_batches(net, data, model, data.test_inputs, labels, of_batch))
    return replace(score, parties=score.parties if named else None, logits=torch.cat(logits) if keep_logits else None)


def score_of(total: Tensors) -> Score:
    """Read the sums of a ScoreQuery."""
    confusion, wrong_right = total["confusion"].cpu(), total["by_party"].cpu()
    by_party = torch.stack([wrong_right.sum(1), wrong_right[:, 1]], 1)
    return Score(confusion, float(total["loss"]) / int(confusion.sum()), by_party)


def evaluate_round(
    trial: Trial, context: RunContext, before: Trial, uploads: dict[int, Upload], personal: Mapping[int, Score]
) -> tuple[dict[str, Any], Mapping[int, Score]]:
    """Evaluate a trial after a round, if it is due; without scores it was not.

    before is the trial before the round; personal has the scores of the parties' own models, where those are judged.
    """
    run = trial.config.run
    if not trial.is_evaluated:
        return {"accuracy": None, "test_loss": None}, {}
    if trial.algorithm.personal:
        record = over_parties(trial, personal)
        spread = spread_on_graph(trial, record["accuracy_by_party"])
        return record | spread | beside_personal(trial, context), personal
    scores = score_models(trial, context, {0: trial.current_model}, keep_logits=trial.is_last)
    score = scores[0]
    record = {
        "accuracy": score.accuracy,
        "test_loss": score.loss,
        "accuracy_by_class": score.by_class,
        **at_parties(trial, score),
        **over_consensus(trial, context, score),
    }
    net, data = context.nets.inference, trial.spec.evaluation
    if trial.spec.monitor is not None:
        record["monitor_loss"] = evaluate(net, trial.spec.monitor, trial.current_model).loss
    if run.evaluate_parties:
        send, infos = trial.algorithm.aggregator.send, trial.spec.infos
        sent = {party: send(before.state, infos[party]).model.weights for party in uploads}
        uploaded = {party: Snapshot(add(sent[party], u.delta), u.buffers) for party, u in uploads.items()}
        record["accuracy_of_party"] = {str(k): evaluate(net, data, model).accuracy for k, model in uploaded.items()}
    return record, scores


def beside_personal(trial: Trial, context: RunContext) -> dict[str, float]:
    """Score the global model too where the personal ones are companions of it: it is complete by itself."""
    if trial.algorithm.local.companion is None:
        return {}
    return {"global_accuracy": evaluate(context.nets.inference, trial.spec.evaluation, trial.state.model).accuracy}


def over_consensus(trial: Trial, context: RunContext, consensus: Score) -> dict[str, Any]:
    """Score the parties' models where each is sent its own: their mean, the worst, and how far they are apart.

    Accuracy and test loss become means over the parties' models; consensus is the score of the mean model, which is
    the one that is kept.
    """
    aggregator, mine = trial.algorithm.aggregator, trial.state.model
    if not sends_own_models(type(aggregator)):
        return {}
    models = aggregator.party_models(trial.state) or {info.party: mine for info in trial.spec.infos}  # before any mixed
    scores = score_models(trial, context, models, keep_logits=False)
    record = over_parties(trial, scores)
    spread = spread_on_graph(trial, record["accuracy_by_party"])
    return record | spread | {"consensus_accuracy": consensus.accuracy}


def spread_on_graph(trial: Trial, accuracies: Sequence[float | None]) -> dict[str, float]:
    """Return the worst accuracy on a graph, and how far the weights that its parties exchange are apart.

    The distance is the root of the mean over parties of ||x_i - mean||^2, over all weights that travel.
    """
    if not sends_own_models(type(trial.algorithm.aggregator)):
        return {}
    models = trial.algorithm.aggregator.party_models(trial.state).values()
    public, mine = [public_part(model, trial.spec.private) for model in models], trial.shared_model
    away = [float(norm(sub(model.weights, mine.weights))) for model in public] or [0.0]  # before any mixed
    return {
        "worst_accuracy": min(accuracy for accuracy in accuracies if accuracy is not None),
        "consensus_distance": statistics.fmean(distance**2 for distance in away) ** 0.5,
    }


def score_models(
    trial: Trial, context: RunContext, models: Mapping[int, Snapshot], keep_logits: bool = True
) -> dict[int, Score]:
    """Score models, by party, on a trial's evaluation rows."""
    net, data = context.nets.inference, trial.spec.evaluation
    by_party = trial.algorithm.personal or len(trial.spec.infos) <= MAX_PARTIES_RECORDED
    return {party: evaluate(net, data, model, keep_logits, by_party) for party, model in models.items()}


def at_parties(trial: Trial, score: Score) -> dict[str, list[float | None]]:
    """Score a model at each party: on the party's own rows where they are known, else by its class shares.

    Of a large population it is not recorded: a round costs by its cohort alone.
    """
    if len(trial.spec.infos) > MAX_PARTIES_RECORDED:
        return {}
    return {"accuracy_at_party": [_at_party(trial, score, info) for info in trial.spec.infos]}


def _at_party(trial: Trial, score: Score, info: PartyInfo) -> float | None:
    known = score.parties is not None and trial.spec.party_names
    return score.on_own_rows(info.party) if known else score.at_party(info)


def over_parties(trial: Trial, scores: Mapping[int, Score]) -> dict[str, Any]:
    """Average over the parties' own models, with the population standard deviation, as the paper reports SOLO.

    SOLO's models are judged on all evaluation rows; those of a rule with own_rows on rows like the party's own.
    """
    by_party: list[float | None] = [score.accuracy for score in scores.values()]
    if trial.algorithm.local.own_rows:
        infos = trial.spec.infos
        own = {party: _at_party(trial, score, infos[party]) for party, score in scores.items()}
        by_party = [own.get(info.party) for info in infos]
    accuracies = [accuracy for accuracy in by_party if accuracy is not None]
    return {
        "accuracy": statistics.fmean(accuracies),
        "accuracy_std": statistics.pstdev(accuracies),
        "accuracy_by_party": by_party,
        "test_loss": statistics.fmean(score.loss for score in scores.values()),
    }
