"""Three worked tasks that are no pictures: a table, a text and a sound, each with parties of its own.

Rounds, epochs and learning rates were chosen for FedAvg on held-out training rows, by one seed that is not among those
compared. MOON's mu is the published 1 and FedProx's the published 0.01: neither was chosen here.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from moonfed.experiments.statistics import Interval, interval, paired
from moonfed.experiments.tune import accuracy_of, last_rounds
from moonfed.storage.run_record import RunRecord

METHODS = ("moon:mu=1", "fedavg", "fedprox:mu=0.01")
BASE, SEEDS = "fedavg", "0-4"


class Task(NamedTuple):
    """A task: its data set, what is asked, who the parties are, and the settings that every method runs with."""

    kind: str
    dataset: str
    question: str
    parties: str
    settings: dict[str, dict[str, Any]]


TASKS = {
    task.kind: task
    for task in (
        Task(
            "table",
            "flights",
            "does a flight out of New York arrive early, on time or late, as known when it leaves the gate?",
            "15 carriers",
            {"data": {"dataset": "flights"}, "train": {"rounds": 10, "epochs": 2, "lr": 0.03}},
        ),
        Task(
            "text",
            "sentiment",
            "is a sentence negative, neutral or positive?",
            "4 sites",
            {"data": {"dataset": "sentiment"}, "train": {"rounds": 10, "epochs": 2, "lr": 0.03}},
        ),
        Task(
            "sound",
            "spoken-digits",
            "which digit is spoken?",
            "6 speakers",
            {"data": {"dataset": "spoken-digits"}, "train": {"rounds": 10, "epochs": 3, "lr": 0.03}},
        ),
    )
}


def result_of(task: Task, trials: Sequence[tuple[str, RunRecord]]) -> dict[str, Any]:
    """Put together what the methods came to, each with its interval and its paired difference to FedAvg."""
    scores: dict[str, dict[int, float]] = {method: {} for method, _ in trials}
    for method, outcome in trials:
        if outcome.finished:
            scores[method][outcome.config.run.seed] = accuracy_of(outcome)
    rounds = trials[0][1].config.train.rounds
    return {
        "task": task.kind,
        "dataset": task.dataset,
        "question": task.question,
        "parties": task.parties,
        "read": f"mean test accuracy over the last {last_rounds(rounds)} of {rounds} rounds",
        "methods": [_line(method, own, scores.get(BASE, {})) for method, own in scores.items()],
        # The trials of a stack share its seconds: each round's were spent on all of them together.
        "seconds": round(max((sum(row["seconds"] for row in o.rows) for _, o in trials), default=0.0), 1),
    }


def _line(method: str, own: dict[int, float], base: dict[int, float]) -> dict[str, Any]:
    gap = paired(own, base) if method != BASE else None
    return {
        "method": method,
        "by_seed": {str(seed): value for seed, value in own.items()},
        "accuracy": interval(list(own.values()))._asdict() if own else None,
        "against_fedavg": None if gap is None else gap._asdict() | {"verdict": verdict(gap)},
    }


def verdict(gap: Interval) -> str:
    """Say in a word what a paired difference shows."""
    if gap.low is None or gap.high is None:
        return "one seed"
    return "better" if gap.low > 0 else "worse" if gap.high < 0 else "not told apart"
