"""fit and compare: a model trained by parties that keep their rows, in one call."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias, Unpack

from torch import nn

from moonfed.api.algorithm_functions import Method, algorithm_of, as_settings, label_of
from moonfed.api.callbacks import CallbackLike, Listeners, Progress, RoundRecord, Start
from moonfed.api.classifier import Classifier, classifier
from moonfed.api.inputs import DataLike, Given, Rows, given, to_stderr
from moonfed.api.keywords import Settings, config_of
from moonfed.api.results import Comparison, Result, Run
from moonfed.core.errors import RunFailed, UserError
from moonfed.core.rules import Algorithm
from moonfed.core.tree import under
from moonfed.core.types import Tensors
from moonfed.experiments.execute import run_trials
from moonfed.models.custom import custom_encoder
from moonfed.storage.run_folder import final_tensors
from moonfed.training.config import Config
from moonfed.training.loop import run_rounds
from moonfed.training.scoring import final_evaluation
from moonfed.training.trial import RunContext, Trial, build, open_context, resolve, set_up

EncoderLike: TypeAlias = nn.Module | Callable[..., nn.Module] | str | None
"""A module (its weights are kept), a class or function that makes one, a name or FILE.py:NAME; None: the data's own."""

AlgorithmLike: TypeAlias = Algorithm | Method | str
"""moon(mu=5), moon, or "moon:mu=5"."""


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

    Nothing is written without out; with it the run folder is that of moonfed run, and resume goes on from its last
    saved round. With several seeds out gets a folder for each.
    """
    how = _how(encoder, data, test, parties, rounds, out, callbacks, resume, progress, settings)
    chosen = algorithm_of(algorithm)
    runs = _run([(label_of(chosen), chosen)], _seeds(seeds), how)
    return Result(tuple(runs))


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
    named = (
        [(name, algorithm_of(given)) for name, given in algorithms.items()]
        if isinstance(algorithms, Mapping)
        else [(label_of(chosen), chosen) for chosen in map(algorithm_of, algorithms)]
    )
    if not named or len({name for name, _ in named}) < len(named):
        raise UserError(f"compare needs algorithms of different names, got {', '.join(name for name, _ in named)}")
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
    asked = dict(settings) | ({} if parties is None else {"parties": parties})
    in_file = isinstance(test, str)
    asked |= {"test": test} if in_file else {}
    reading = {k: v for k, v in asked.items() if k in ("holdout", "holdout_seed", "skip_bad_rows")}
    checked = config_of({}, reading | {"path": "."}).data
    rows = given(data, None if in_file else test, checked)
    return _How(encoder, rows, rounds, out, callbacks, resume, progress, asked)


def _run(named: Sequence[tuple[str, Algorithm]], seeds: Sequence[int], how: _How) -> list[Run]:
    """Run every algorithm with every seed."""
    plan = [(name, how.config(algorithm, seed)) for name, algorithm in named for seed in seeds]
    listeners = Listeners([*how.callbacks, *([Progress()] if how.progress else [])])
    own = None if how.encoder is None or isinstance(how.encoder, str) else custom_encoder(how.encoder)
    say = to_stderr if how.progress else lambda line: None
    bench = open_context(plan[0][1], len(plan), say, how.rows.data, own)
    trials: list[Trial] = []
    noted: dict[int, list[RoundRecord]] = {}

    def start(ready: list[Trial]) -> None:
        trials.extend(ready)
        noted.update({id(trial): [] for trial in ready})
        sizes = tuple(facts.rows for facts in ready[0].facts)
        named = tuple((name, config.run.seed) for name, config in plan)
        listeners.start(Start(named, sizes, how.rounds, min(trial.round for trial in ready)))

    def note(trial: Trial, row: RoundRecord) -> None:
        name = plan[[id(t) for t in trials].index(id(trial))][0]
        noted[id(trial)].append(row)
        listeners.round({"method": name, "seed": trial.config.run.seed} | row)

    def go_on(round: int, rows: list[RoundRecord]) -> bool:
        return not listeners.stopping

    folders = [how.folder(name, config.run.seed, len(named) == 1, len(seeds) == 1) for name, config in plan]
    if how.out is None:
        ready = [set_up(resolve(config, bench.data, bench.own), bench) for _, config in plan]
        start(ready)
        run_rounds(ready, bench, lambda trial, settled: note(trial, settled.row), go_on)
        rows = [noted[id(trial)] for trial in ready]
    else:
        jobs = [(config, folder) for (_, config), folder in zip(plan, folders, strict=True)]
        outcomes = run_trials(jobs, how.resume, start, go_on, bench=bench, noted=note)
        rows = [outcome.rows for outcome in outcomes]
    return [
        _outcome(name, trial, bench, own_rows, folder, how.rows)
        for (name, _), trial, own_rows, folder in zip(plan, trials, rows, folders, strict=True)
    ]


def _outcome(
    name: str, trial: Trial, bench: RunContext, rows: list[RoundRecord], folder: Path | None, rows_given: Given
) -> Run:
    """Say what came of a trial."""
    seed = trial.config.run.seed
    if trial.failure is not None:
        raise RunFailed(f"{name}, seed {seed}: {trial.failure}; try a smaller lr")
    rows = [{"method": name, "seed": seed} | row for row in rows]
    return Run(
        name, seed, trial.config, rows, final_evaluation(trial, bench), _models(trial, bench, rows_given), folder
    )


def _models(trial: Trial, bench: RunContext, rows: Given) -> dict[str, Classifier]:
    """Make a classifier of the global model, or of each party's where each has its own."""
    tensors = final_tensors(trial)

    def made(of: Tensors) -> Classifier:
        return classifier(build(trial.spec), of, bench.data, rows.classes)

    if trial.algorithm.local.own is None:
        return {"global": made(tensors)}
    return {str(party): made(under(f"party{party}", tensors)) for party in sorted(trial.memory)}


def _seeds(seeds: int | Sequence[int]) -> list[int]:
    try:
        found = [index(seed) for seed in (seeds if isinstance(seeds, Iterable) else [seeds])]
    except TypeError:
        found = []
    if not found or len(set(found)) < len(found):
        raise UserError(f"seeds needs different whole numbers, 0 or [0, 1, 2], got {seeds!r}")
    return found
