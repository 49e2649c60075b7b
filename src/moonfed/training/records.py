"""One round of one trial as it is logged: a line of rounds.jsonl, and what callbacks get."""

from typing import NotRequired, TypedDict


class RoundRecord(TypedDict):
    """What is known of a finished round; accuracies are fractions, None where the round was not evaluated."""

    round: int
    accuracy: float | None
    test_loss: float | None
    accuracy_by_class: NotRequired[list[float]]
    accuracy_at_party: NotRequired[list[float | None]]  # the global model at each party
    accuracy_of_party: NotRequired[dict[str, float]]  # each party's model after its local training
    accuracy_by_party: NotRequired[list[float]]  # of personal models
    accuracy_std: NotRequired[float]
    monitor_loss: NotRequired[float | None]  # the global model's loss on rows set aside, if there are any
    best_round: NotRequired[int]  # with early stopping: the round with the lowest monitor_loss so far
    losses: dict[str, float]  # mean of each part of the loss over all steps of all parties
    bytes_up: int
    bytes_down: int
    cohort: list[int]
    steps: int
    gamma: NotRequired[dict[str, float | None]]
    seconds: float
    trials_in_stack: int
    method: NotRequired[str]  # for callbacks and results, where several methods are run
    seed: NotRequired[int]
