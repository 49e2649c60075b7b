"""What a user should be warned about when a run ends."""

import logging
import math

from moonfed.training.records import RoundRecord
from moonfed.training.trial import Trial

logger = logging.getLogger(__name__)


def warn_about(trial: Trial, last: RoundRecord) -> None:
    """Warn if a finished trial's training loss is no better than guessing: it diverged, or had too few steps."""
    loss, guess = last["losses"].get("supervised"), guessing_loss(trial)
    if loss is not None and guess > 0 and loss >= guess:
        logger.warning(
            "%s, seed %s: the training loss ended at %.3g, no better than guessing by class shares (%.3g); "
            "train longer, or use another lr (if it diverged, a smaller one or max_grad_norm 1)",
            trial.spec.label,
            trial.config.run.seed,
            loss,
            guess,
        )


def guessing_loss(trial: Trial) -> float:
    """The cross-entropy of predicting the class shares of all training rows, whatever the input."""
    totals = [sum(counts) for counts in zip(*(info.class_counts for info in trial.spec.infos), strict=True)]
    rows = sum(totals)
    return -sum(n / rows * math.log(n / rows) for n in totals if n)
