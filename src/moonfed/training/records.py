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
    accuracy_by_party: NotRequired[list[float | None]]  # of personal models, and of the parties' models in a graph
    accuracy_std: NotRequired[float]  # of accuracy_by_party
    global_accuracy: NotRequired[float]  # of the global model on all rows, where personal models are trained beside it
    worst_accuracy: NotRequired[float]  # in a graph: the lowest of accuracy_by_party, whose mean is the accuracy
    consensus_accuracy: NotRequired[float]  # in a graph: of the mean of the parties' models
    consensus_distance: NotRequired[float]  # in a graph: root of the mean over parties of ||x_i - mean||^2
    monitor_loss: NotRequired[float | None]  # the global model's loss on rows set aside, if there are any
    best_round: NotRequired[int]  # with early stopping: the round with the lowest monitor_loss so far
    losses: dict[str, float]  # mean of each part of the loss over all steps of all parties
    bytes_up: int
    bytes_down: int
    cohort: list[int]
    steps: int  # of the uploaded models
    gamma: NotRequired[dict[str, float | None]]
    seconds: float  # of the whole round, with all trials that share it
    training_seconds: NotRequired[float]  # of this trial's parties, summed over devices or processes
    trials_in_stack: int
    method: NotRequired[str]  # for callbacks and results, where several methods are run
    seed: NotRequired[int]
