"""The learning rate of each round."""

import math

from moonfed.training.settings import TrainSettings


def round_lr(train: TrainSettings, round: int) -> float:
    """Return the learning rate of a round, counted from 0: the first is lr, the last is still above 0.

    cosine: lr (1 + cos(pi r / R)) / 2; linear: lr (1 - r / R), for round r of R; each times lr_decay^r.
    """
    done, lr = round / train.rounds, train.lr * train.lr_decay**round
    if train.lr_schedule == "cosine":
        return lr * (1 + math.cos(math.pi * done)) / 2
    return lr * (1 - done) if train.lr_schedule == "linear" else lr
