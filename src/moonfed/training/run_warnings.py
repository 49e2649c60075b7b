"""Warnings about a finished trial whose model is of little use, and what to do about it."""

import logging
import math
from collections.abc import Iterable, Sequence

from moonfed.core.algorithm import sends_own_models
from moonfed.training.early_stopping import best_round
from moonfed.training.records import RoundRecord
from moonfed.training.trial import Trial
from moonfed.training.trial_seeds import seeds_of

logger = logging.getLogger(__name__)

MAX_WARNINGS = 3  # that are given in full
MAX_LOSS_RISE = 1.1  # of the test loss above its minimum, or above that of guessing, before it is worth a warning


def warn_about(finished: Iterable[tuple[Trial, Sequence[RoundRecord]]]) -> None:
    """Warn of finished trials that do no better than guessing, or have learned their training rows by heart.

    Of many such trials the first are described.
    """
    problems = [text for trial, rounds in finished if (text := problem_of(trial, rounds)) is not None]
    shown = problems if len(problems) <= MAX_WARNINGS + 1 else problems[:MAX_WARNINGS]
    for text in shown:
        logger.warning("%s", text)
    if len(problems) > len(shown):
        logger.warning("%d more trials have such problems; their records show them", len(problems) - len(shown))


def problem_of(trial: Trial, rounds: Sequence[RoundRecord]) -> str | None:
    """Say what is wrong with a finished trial and what to do about it; None if nothing is."""
    if not rounds or not trial.done or trial.failure is not None:
        return None
    who = f"{trial.spec.label}, {seeds_of(trial.config).text}"
    if all(row.get("cohort") == [] for row in rounds):
        return f"{who}: all parties of every round were dropped; use a smaller stragglers, or stragglers_keep"
    if problems := _guessing(trial, rounds):
        other = ", or optimizer adamw" if trial.config.train.optimizer == "sgd" else ""
        longer = "use a larger patience or another lr" if trial.stopped else "train longer, or use another lr"
        advice = f"{longer} (if it diverged, a smaller one or max_grad_norm 1){other}"
        return f"{who}: {'; '.join(problems)}; {advice}"
    if trial.algorithm.personal:  # a party's own model lacks what the others' rows say, which is no news
        return None
    graph = sends_own_models(type(trial.algorithm.aggregator))
    found, last, guess = overfitting(rounds, trial.config.data.judged), _last_test_loss(rounds), guessing_loss(trial)
    worse = f"worse than guessing by class shares ({guess:.3g})"
    if found is not None:
        found += f", {worse}" if last > guess > 0 else ""
        patience = "" if graph else "patience (for example 5), "
        return f"{who}: {found}; use {patience}fewer epochs or more weight_decay"
    # A graph has neither patience nor a temperature.
    if not graph and last > MAX_LOSS_RISE * guess > 0 and "temperature" not in (trial.evaluation or {}):
        advice = "calibrate" if trial.best is not None else "use patience or calibrate"
        return f"{who}: the {trial.config.data.judged} loss ended at {last:.3g}, {worse}; {advice}"
    return None


def kept_rounds(rounds: Sequence[RoundRecord]) -> Sequence[RoundRecord]:
    """Return the rounds up to that of the model that is kept: with early stopping the best one, else the last."""
    return rounds[: best_round(rounds)]


def _last_test_loss(rounds: Sequence[RoundRecord]) -> float:
    """The test loss of the model that is kept."""
    kept = kept_rounds(rounds)
    return next((row["test_loss"] for row in reversed(kept) if row["test_loss"] is not None), 0.0)


def _guessing(trial: Trial, rounds: Sequence[RoundRecord]) -> list[str]:
    """Say in what way a model does no better than guessing."""
    problems: list[str] = []
    loss, guess = kept_rounds(rounds)[-1]["losses"].get("supervised"), guessing_loss(trial)
    if loss is not None and guess > 0 and loss >= guess:
        best = best_round(rounds)
        when = "ended at" if best is None else f"of the kept round, {best}, was"
        problems.append(f"the training loss {when} {loss:.3g}, no better than guessing by class shares ({guess:.3g})")
    confusion: list[list[int]] = (trial.evaluation or {}).get("confusion", [])
    predicted = [k for k, rows in enumerate(zip(*confusion, strict=True)) if any(rows)]
    if len(predicted) == 1 and guess > 0:
        names, (single,) = trial.spec.evaluation.class_names, predicted
        share = sum(confusion[single]) / sum(map(sum, confusion))
        name = names[single] if names else single
        problems.append(f"every row is predicted as class {name}, whose share is {share:.1%}")
    return problems


def overfitting(rounds: Sequence[RoundRecord], kind: str = "test") -> str | None:
    """Say when the test loss was lowest, if it rose by more than a tenth since while the training loss fell.

    Early stopping keeps a model of before that, so there is nothing to say.
    """
    judged = [(row["round"], row["test_loss"], row["losses"].get("supervised")) for row in rounds]
    known = [(round, test, train) for round, test, train in judged if test is not None and train is not None]
    if not known or best_round(rounds) is not None:
        return None
    (low_round, low, train_before), (_, last, train_after) = min(known, key=lambda found: found[1]), known[-1]
    if last <= MAX_LOSS_RISE * low or train_after >= train_before:
        return None
    return (
        f"it overfits: the {kind} loss was lowest in round {low_round} ({low:.3g}) and rose to {last:.3g}, while the "
        f"training loss fell from {train_before:.3g} to {train_after:.3g}"
    )


def guessing_loss(trial: Trial) -> float:
    """The cross-entropy of predicting the class shares of all training rows, whatever the input."""
    return -sum(share * math.log(share) for share in trial.spec.totals.class_shares if share)
