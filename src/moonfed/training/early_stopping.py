"""Early stopping: the best model by the loss on rows set aside, and when to stop waiting for a better one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from moonfed.core.types import Snapshot


@dataclass(frozen=True, eq=False)
class Best:
    """The model with the lowest loss on the rows set aside, and how many evaluated rounds have passed since."""

    round: int
    loss: float
    model: Snapshot
    waited: int = 0


def better(best: Best | None, round: int, loss: float, model: Snapshot) -> Best:
    """Return the better of the best model so far and that of an evaluated round; of equals, the earlier."""
    if best is None or loss < best.loss:
        return Best(round, loss, model)
    return replace(best, waited=best.waited + 1)


def best_round(rounds: Sequence[Mapping[str, Any]]) -> int | None:
    """The round whose model is kept, as its records say; None without early stopping."""
    return rounds[-1].get("best_round") if rounds else None


def rounds_waited(rounds: Sequence[Mapping[str, Any]]) -> int:
    """Number of evaluated rounds since the best one."""
    best = best_round(rounds)
    return 0 if best is None else sum(row.get("monitor_loss") is not None for row in rounds[best:])


def has_stopped(rounds: Sequence[Mapping[str, Any]], patience: int) -> bool:
    """Whether records end because the patience was used up."""
    return bool(patience) and rounds_waited(rounds) >= patience
