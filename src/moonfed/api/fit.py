"""fit and compare: a model trained by parties that keep their rows, in one call."""

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import index
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias, Unpack

from torch import nn

from moonfed.api.algorithm_functions import AlgorithmFunction, algorithm_of, as_settings, label_of
from moonfed.api.classifier import Classifier, classifier, run_facts
from moonfed.api.inputs import DataLike, Given, Rows, given
from moonfed.api.keywords import Settings, by_keyword, check_keywords, config_of, keyword_errors
from moonfed.api.results import Comparison, Result, Run
from moonfed.core.algorithm import Algorithm
from moonfed.core.errors import RunFailed, UserError
from moonfed.core.tree import under
from moonfed.core.types import Tensors
from moonfed.experiments.execute import execute
from moonfed.models.custom import custom_encoder
from moonfed.storage.run_folder import final_tensors
from moonfed.training.callbacks import Callback, Finished, FunctionCallback, with_method
from moonfed.training.config import Config
from moonfed.training.final_evaluation import final_evaluation
from moonfed.training.loop import run_rounds
from moonfed.training.network import build
from moonfed.training.records import RoundRecord
from moonfed.training.run_warnings import warn_about
from moonfed.training.setup import set_up
from moonfed.training.trial import RunContext, Trial

SECONDS_BETWEEN_LINES = 2.0

CallbackLike: TypeAlias = Callback | Callable[[RoundRecord], bool | None]
"""A Callback, or a function that is called with the record of each finished round."""

EncoderLike: TypeAlias = nn.Module | Callable[..., nn.Module] | str | None
"""A module (its weights are kept), a class or function that makes one, a name or FILE.py:NAME; None: the data's own."""

AlgorithmLike: TypeAlias = Algorithm | AlgorithmFunction | str
"""moon(mu=5), moon, or "moon:mu=5"."""


@keyword_errors()
def fit(
    encoder: EncoderLike = None,
    data: DataLike = "digits",
    algorithm: AlgorithmLike = "moon",
    parties: int | None = None,
    rounds: int = 20,
    seeds: int | Sequence[int] = 0,
    out: str | PathLike[str] | None = None,
    callbacks: Sequence[CallbackLike] = (),
    *,
    test: Rows | str | None = None,
    resume: bool = False,
    progress: bool = True,
    **settings: Unpack[Settings],
) -> Result:
    """Train a classifier with its rows split between parties, and return the global model and how it came about.

    >>> from moonfed import fit, moon
    >>> result = fit("mlp", "digits", moon(mu=1), parties=4, rounds=2, epochs=4)
    >>> result.accuracy > 0.5
    True
    >>> result.model.predict([[[[0] * 8] * 8]]).shape
    (1,)

    Nothing is written without out; with it the run folder is that of moonfed run, and resume continues from its last
    saved round. With several seeds out gets a folder for each.
    """
    chosen = algorithm_of(algorithm)
    check_keywords(settings, fit, [chosen])
    how = _how(encoder, data, test, parties, rounds, out, callbacks, resume, progress, settings)
    runs = _run([(label_of(chosen), chosen)], _seeds(seeds), how)
    return Result(tuple(runs))


@keyword_errors()
def compare(
    algorithms: Sequence[AlgorithmLike] | Mapping[str, AlgorithmLike],
    encoder: EncoderLike = None,
    data: DataLike = "digits",
    parties: int | None = None,
    rounds: int = 20,
    seeds: int | Sequence[int] = (0, 1, 2),
    out: str | PathLike[str] | None = None,
    callbacks: Sequence[CallbackLike] = (),
    *,
    test: Rows | str | None = None,
    resume: bool = False,
    progress: bool = True,
    **settings: Unpack[Settings],
) -> Comparison:
    """Train several algorithms on the same splits and batches, as one stack where they fit.

    >>> from moonfed import compare, fedavg, moon
    >>> both = compare([moon(mu=5), fedavg()], "mlp", parties=4, rounds=1, epochs=1, seeds=[0, 1])
    >>> list(both.results)
    ['moon:mu=5', 'fedavg']
    """
    if isinstance(algorithms, str) or not isinstance(algorithms, Iterable):
        raise UserError(f"compare needs a list of algorithms, [moon(), fedavg()], got {algorithms!r}")
    named = (
        [(name, algorithm_of(given)) for name, given in algorithms.items()]
        if isinstance(algorithms, Mapping)
        else [(label_of(chosen), chosen) for chosen in map(algorithm_of, algorithms)]
    )
    if not named:
        raise UserError("compare needs at least one algorithm, got none")
    if len({name for name, _ in named}) < len(named):
        raise UserError(f"compare needs algorithms of different names, got {', '.join(name for name, _ in named)}")
    check_keywords(settings, compare, [chosen for _, chosen in named])
    how = _how(encoder, data, test, parties, rounds, out, callbacks, resume, progress, settings)
    runs = _run(named, _seeds(seeds), how)
    return Comparison({name: Result(tuple(run for run in runs if run.method == name)) for name, _ in named})


@dataclass(frozen=True)
class _How:
    """What fit and compare are asked for alike."""

    encoder: EncoderLike
    rows: Given
    rounds: int
    out: str | PathLike[str] | None
    callbacks: Sequence[CallbackLike]
    resume: bool
    progress: bool
    settings: dict[str, Any]

    def config(self, algorithm: Algorithm, seed: int) -> Config:
        """Make the config of one trial."""
        model = self.encoder if isinstance(self.encoder, str) else "auto"
        asked = {"model": model, "rounds": self.rounds, "seed": seed}
        return config_of(as_settings(algorithm), self.settings | self.rows.settings | asked)

    def folder(self, method: str, seed: int, alone: bool, single: bool) -> Path | None:
        """Say where a trial goes: to out itself, or below it by method and seed."""
        if self.out is None:
            return None
        top = Path(self.out) if alone else Path(self.out) / "".join(c if c not in ":,/" else "-" for c in method)
        return top if single and alone else top / f"seed-{seed}"


def _how(
    encoder: EncoderLike,
    data: DataLike,
    test: Rows | str | None,
    parties: int | None,
    rounds: int,
    out: str | PathLike[str] | None,
    callbacks: Sequence[CallbackLike],
    resume: bool,
    progress: bool,
    settings: Mapping[str, Any],
) -> _How:
    if not isinstance(callbacks, Iterable):
        raise UserError(f"callbacks is a list of functions and of Callbacks, got {type(callbacks).__name__}")
    callbacks = list(callbacks)
    for callback in callbacks:
        if isinstance(callback, type) or not (isinstance(callback, Callback) or callable(callback)):
            raise UserError(f"a callback is a function of a round's record, or a Callback object, got {callback!r}")
    if not isinstance(out, str | PathLike | None):
        raise UserError(f"out is the path of a run folder, got {out!r}")
    asked = dict(settings) | ({} if parties is None else {"parties": parties})
    in_file = isinstance(test, str)
    asked |= {"test": test} if in_file else {}
    reading = {k: v for k, v in asked.items() if k in ("holdout", "holdout_seed", "skip_bad_rows")}
    checked = config_of({}, reading | {"path": "."}).data
    with messages(progress):
        rows = given(data, None if in_file else test, checked)
    return _How(encoder, rows, rounds, out, callbacks, resume, progress, asked)


class ProgressLines(Callback):
    """Prints how a run proceeds to stderr, at most every two seconds."""

    def __init__(self) -> None:
        self.last = time.monotonic()

    def on_round(self, finished: Finished) -> None:
        """Print the last trial's round, unless something was printed just before."""
        if finished and time.monotonic() - self.last > SECONDS_BETWEEN_LINES:
            self.last = time.monotonic()
            trial, record = finished[-1]
            accuracy = "" if record["accuracy"] is None else f", accuracy {record['accuracy']:.1%}"
            where = f"round {record['round']} of {trial.config.train.rounds}"
            print(f"{trial.spec.label}, seed {trial.config.run.seed}: {where}{accuracy}", file=sys.stderr)


class History(Callback):
    """Keeps the records of every trial in memory."""

    def __init__(self) -> None:
        self.records: dict[Any, list[RoundRecord]] = {}

    def on_round(self, finished: Finished) -> None:
        """Keep the record of each trial."""
        for trial, record in finished:
            self.records.setdefault(trial.spec, []).append(record)


class KeywordFormatter(logging.Formatter):
    """Names keywords in messages that name flags on the command line."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a message for readers in Python."""
        return by_keyword(super().format(record))


@contextmanager
def messages(shown: bool) -> Iterator[None]:
    """Print the package's messages to stderr while a call lasts; without them, warnings only."""
    logger = logging.getLogger("moonfed")
    handler, before = logging.StreamHandler(), logger.level
    handler.setFormatter(KeywordFormatter("%(message)s"))
    if logger.hasHandlers() or not shown:  # the user, or the command line, has set up logging
        yield
        return
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def _run(named: Sequence[tuple[str, Algorithm]], seeds: Sequence[int], how: _How) -> list[Run]:
    """Run every algorithm with every seed."""
    plan = [(name, how.config(algorithm, seed)) for name, algorithm in named for seed in seeds]
    callbacks = [c if isinstance(c, Callback) else FunctionCallback(c) for c in how.callbacks]
    callbacks += [ProgressLines()] if how.progress else []
    custom = None if how.encoder is None or isinstance(how.encoder, str) else custom_encoder(how.encoder)
    folders = [how.folder(name, config.run.seed, len(named) == 1, len(seeds) == 1) for name, config in plan]
    with messages(how.progress):
        context, trials = set_up([config for _, config in plan], [name for name, _ in plan], how.rows.data, custom)
        places = [folder for folder in folders if folder is not None]
        if places:
            done = execute(context, trials, places, how.resume, callbacks)
            ended, rounds = [trial for trial, _ in done], [record.rows for _, record in done]
        else:
            history = History()
            for callback in callbacks:
                callback.on_start(trials)
            ended = run_rounds(trials, context, [history, *callbacks])
            for callback in callbacks:
                callback.on_end(ended)
            rounds = [history.records.get(trial.spec, []) for trial in ended]
            warn_about(zip(ended, rounds, strict=True))
    return [
        _outcome(trial, context, records, folder, how.rows)
        for trial, records, folder in zip(ended, rounds, folders, strict=True)
    ]


def _outcome(trial: Trial, context: RunContext, rounds: list[RoundRecord], folder: Path | None, rows: Given) -> Run:
    """Collect the results of a trial."""
    name, seed = trial.spec.label, trial.config.run.seed
    if trial.failure is not None:
        raise RunFailed(f"{name}, seed {seed}: {trial.failure}; try a smaller lr")
    history = [with_method(trial, record) for record in rounds]
    evaluation = trial.evaluation or final_evaluation(trial, context)
    models = _models(trial, context, rows, evaluation.get("temperature"))
    return Run(name, seed, trial.config, history, evaluation, models, folder)


def _models(trial: Trial, context: RunContext, rows: Given, temperature: float | None = None) -> dict[str, Classifier]:
    """Make a classifier of the global model, or of each party's where each has its own."""
    tensors, run = final_tensors(trial), run_facts(trial.config, trial.round)

    def make(of: Tensors) -> Classifier:
        return classifier(build(trial.spec.network), of, context.data, rows.classes, run, temperature)

    if not trial.algorithm.personal:
        return {"global": make(tensors)}
    names = {trial.spec.party_name(party): f"party{party}" for party in trial.personal_models()}
    shared = "global model" if "global" in names else "global"  # there may be a party of that name
    return {name: make(of) for name, key in {shared: "global", **names}.items() if (of := under(key, tensors))}


def _seeds(seeds: int | Sequence[int]) -> list[int]:
    try:
        found = [index(seed) for seed in (seeds if isinstance(seeds, Iterable) else [seeds])]
    except TypeError:
        found = []
    if not found or len(set(found)) < len(found):
        raise UserError(f"seeds needs different whole numbers, 0 or [0, 1, 2], got {seeds!r}")
    return found
