"""Which rows the accuracies of a run are on."""

from moonfed.training.config import Config
from moonfed.training.registry import ALGORITHMS


def judged_on_own_rows(config: Config) -> bool:
    """Whether accuracies are those of personal models, each on rows like its party's own."""
    return ALGORITHMS[config.algorithm.name].local.own_rows


def accuracy_on(config: Config) -> str:
    """Say for programs which rows accuracies are on: test, held-out, own test or own held-out."""
    return ("own " if judged_on_own_rows(config) else "") + config.data.judged


def judged_on(config: Config) -> str:
    """Say in a sentence which rows accuracies are on."""
    if not judged_on_own_rows(config):
        return config.data.judged_on
    return "rows like each party's own" + (", held out of training" if config.data.validation else "")
