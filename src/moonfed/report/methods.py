"""Methods over their seeds, and settings in which methods can be compared."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

from moonfed.experiments.statistics import (
    Interval,
    accuracy_interval,
    deviation,
    no_interval,
    paired,
    rounds_to,
    unit_means,
    verdict,
)
from moonfed.report.graph_figures import consensus_figures
from moonfed.report.group_names import describe
from moonfed.storage.run_record import RunRecord
from moonfed.training.accuracy import accuracy, accuracy_window, final_accuracy
from moonfed.training.evaluation_rows import accuracy_on, judged_on_own_rows
from moonfed.training.metrics import METRIC_NAMES
from moonfed.training.records import RoundRecord
from moonfed.training.trial_seeds import TrialSeeds

DEFAULT_BASELINE = "fedavg"
METRIC_TOPS = {"log_loss": math.inf, "brier": 2.0}  # the largest value of a metric, where it is not 1


@dataclass(frozen=True)
class Method:
    """One method in one setting, over its seeds.

    Its numbers come from the finished trials. If none has finished, they come from those that have not failed, up to
    the last round that all of these have; `partial` is then true.
    """

    name: str
    records: list[RunRecord]
    duplicates: tuple[RunRecord, ...] = ()  # other folders that hold one of these trials; not counted twice

    @cached_property
    def partial(self) -> bool:
        """Whether no trial has finished."""
        return not any(record.finished for record in self.records)

    @cached_property
    def unit(self) -> Callable[[TrialSeeds], int] | None:
        """What of its seeds makes trials independent of each other: with several hold-outs, the hold-out."""
        return attrgetter("holdout") if len({record.seeds.holdout for record in self.records}) > 1 else None

    @property
    def noun(self) -> str:
        """The word for that: its numbers are means over seeds, or over hold-outs."""
        return "seed" if self.unit is None else "hold-out"

    def independent(self, values: Mapping[TrialSeeds, float]) -> list[float]:
        """Values to take means, deviations and intervals of: one per seed, or per hold-out the mean over its seeds."""
        return unit_means(values, self.unit)

    @cached_property
    def rows(self) -> dict[TrialSeeds, list[RoundRecord]]:
        """Round records of the trials that count."""
        counted = [r for r in self.records if r.finished or (self.partial and r.failure is None and r.rows)]
        shortest = min((len(r.rows) for r in counted), default=0) if self.partial else None
        return {r.seeds: r.rows[:shortest] for r in counted}

    @property
    def rounds(self) -> int:
        """Number of rounds behind the numbers; with early stopping, the most of a trial."""
        return max((len(rows) for rows in self.rows.values()), default=0)

    @property
    def accuracy_label(self) -> str:
        """Column label that says which rounds are behind the accuracy."""
        return f"accuracy ({accuracy_window(next(iter(self.rows.values()), []))})"

    @cached_property
    def accuracy(self) -> dict[TrialSeeds, float]:
        """Accuracy by seed, as training.accuracy defines it."""
        return {seeds: value for seeds, rows in self.rows.items() if (value := accuracy(rows)) is not None}

    @cached_property
    def final_accuracy(self) -> dict[TrialSeeds, float]:
        """Accuracy of the last evaluated round, by seed."""
        return {seeds: value for seeds, rows in self.rows.items() if (value := final_accuracy(rows)) is not None}

    @property
    def metrics(self) -> dict[str, dict[TrialSeeds, float]]:
        """Log loss, Brier score, calibration error and so on of the final models, by seed."""
        found: dict[str, dict[TrialSeeds, float]] = {name: {} for name in METRIC_NAMES}
        for record in self.records:
            for name, values in found.items():
                if (value := record.evaluation.get(name)) is not None:
                    values[record.seeds] = float(value)
        return {name: values for name, values in found.items() if values}

    def as_long_as(self, other: "Method") -> bool:
        """Whether two methods ran for as many rounds, or may have: early stopping ends trials at different rounds."""
        asked = self.records[0].config.train.rounds == other.records[0].config.train.rounds
        return self.rounds == other.rounds or (asked and not self.partial and not other.partial)

    @property
    def open_trials(self) -> list[str]:
        """How each trial ended that has failed or is not finished."""
        return [f"{r.seeds.text} {r.state}" for r in self.records if not r.finished]

    @property
    def remarks(self) -> list[str]:
        """Remarks on unfinished and duplicate trials, and on a method with one seed."""
        remarks = self.open_trials
        if self.partial and self.rows:
            remarks.append(f"numbers up to round {self.rounds} of {self.records[0].config.train.rounds}")
        remarks += [f"{r.seeds.text} is also in {r.folder.as_posix()} and not counted twice" for r in self.duplicates]
        return (
            [*remarks, "one trial: no spread can be given" if self.unit else "one seed: no spread can be given"]
            if len(self.rows) == 1
            else remarks
        )

    def mean(self, name: str) -> float | None:
        """Mean of a field over all rounds and seeds."""
        values = [row[name] for rows in self.rows.values() for row in rows]
        return statistics.fmean(values) if values else None

    @property
    def training_seconds(self) -> float | None:
        """Mean over all rounds and seeds of the seconds of a trial's training, where every round recorded them."""
        values = [row.get("training_seconds") for rows in self.rows.values() for row in rows]
        known = [value for value in values if value is not None]
        return statistics.fmean(known) if known and len(known) == len(values) else None

    def as_json(self) -> dict[str, Any]:
        """The numbers of the method; accuracies are fractions."""
        return {
            "method": self.name,
            "seeds": [seeds.training for seeds in self.rows],
            "rounds": self.rounds,
            "rounds_requested": self.records[0].config.train.rounds,
            "accuracy": self._summary(self.accuracy),
            "final_accuracy": self._summary(self.final_accuracy),
            "metrics": {k: self._summary(values, METRIC_TOPS.get(k, 1.0)) for k, values in self.metrics.items()},
            "cost": {
                "bytes_up_per_round": self.mean("bytes_up"),
                "bytes_down_per_round": self.mean("bytes_down"),
                "seconds_per_round": self.training_seconds,
            },
            **self._on_graph(),
            "failures": [record.failure for record in self.records if record.failure is not None],
            "remarks": self.remarks,
            "folders": [str(record.folder) for record in self.records],
        }

    def _on_graph(self) -> dict[str, Any]:
        """The graph of the parties and the figures of their models; nothing with a server."""
        topology = self.records[0].topology
        return {} if topology is None else {"graph": {"topology": topology, **consensus_figures(self.records)}}

    def _summary(self, values: dict[TrialSeeds, float], top: float = 1.0) -> dict[str, Any]:
        found = self.independent(values)
        over = accuracy_interval(found, top) if found else None
        ends = {"mean": None, "low": None, "high": None, "n": 0} if over is None else over._asdict()
        why = None if over is None else no_interval(over, self.noun)
        return ends | {"remark": why, "std": deviation(found), "by_seed": _by_seed(values)}


@dataclass(frozen=True)
class Setting:
    """Methods that differ only in their algorithm and can therefore be compared."""

    title: str
    methods: list[Method]
    baseline_name: str | None = None  # default: fedavg if it is there, else the first method
    reference: Method | None = None  # of personal models: the global model of fedavg on the same rows

    @property
    def description(self) -> str:
        """The setting in full: data, split, rounds and network."""
        return describe(shared_settings(self.methods[0].records[0]))

    @property
    def config(self) -> Any:
        """The settings that all methods share, with the algorithm of the first method."""
        return self.methods[0].records[0].config

    @cached_property
    def baseline(self) -> Method:
        """The method that the others are compared with."""
        wanted = self.baseline_name or DEFAULT_BASELINE
        default = self.reference or self.methods[0]
        return next((m for m in self.methods if m.name == wanted and m.rows), default)

    @property
    def shown(self) -> list[Method]:
        """The methods, after the reference if there is one."""
        return self.methods if self.reference is None else [self.reference, *self.methods]

    def place(self, method: Method) -> int:
        """The place of a method on the page, by which it is coloured."""
        return next(place for place, each in enumerate(self.shown) if each is method)

    def difference(self, method: Method) -> Interval | None:
        """Difference in accuracy between a method and the baseline, paired by trial, with its interval over units."""
        if method is self.baseline or not method.as_long_as(self.baseline):
            return None
        return paired(method.accuracy, self.baseline.accuracy, method.unit or self.baseline.unit)

    @property
    def noun(self) -> str:
        """The word for what means and intervals are over: seeds, or hold-outs if a method has several."""
        return next((method.noun for method in self.methods if method.unit), "seed")

    def rounds_to_baseline(self, method: Method) -> dict[TrialSeeds, int | None]:
        """By seed, the first round in which a method reaches the baseline's final accuracy."""
        targets = self.baseline.final_accuracy
        return {seeds: rounds_to(rows, targets[seeds]) for seeds, rows in method.rows.items() if seeds in targets}

    def rounds_to(self, method: Method, target: float) -> dict[TrialSeeds, int | None]:
        """By seed, the first round in which a method reaches a given accuracy."""
        return {seeds: rounds_to(rows, target) for seeds, rows in method.rows.items()}

    def as_json(self, targets: Sequence[float] = ()) -> dict[str, Any]:
        """The numbers of the setting; its reference, if there is one, is the first method."""
        methods: list[dict[str, Any]] = []
        for method in self.shown:
            gap = self.difference(method)
            methods.append(
                method.as_json()
                | {
                    "accuracy_on": accuracy_on(self.config),
                    "baseline": self.baseline.name,
                    "difference": None if gap is None else gap._asdict() | {"verdict": verdict(gap)},
                    "rounds_to_baseline": _by_seed(self.rounds_to_baseline(method)),
                    "rounds_to": {f"{target:g}": _by_seed(self.rounds_to(method, target)) for target in targets},
                }
            )
        return {
            "title": self.title,
            "dataset": self.config.data.dataset,
            "baseline": self.baseline.name,
            "methods": methods,
        }


def shared_settings(record: RunRecord) -> dict[str, Any]:
    """The settings that methods must share to be compared: all but the algorithm, the seeds and the machine.

    The seed of the hold-out is one of the seeds. Accuracies on each party's own rows are compared among themselves.
    """
    values = record.config.model_dump(mode="json")
    flat = {name: value for section in ("data", "model", "train", "cohort") for name, value in values[section].items()}
    del flat["partition_seed"], flat["holdout_seed"]
    return flat | {"precision": values["run"]["precision"], "own_rows": judged_on_own_rows(record.config)}


def algorithm_settings(record: RunRecord) -> dict[str, Any]:
    """The settings of a record's algorithm."""
    return dict(record.config.algorithm.options)


def _by_seed(values: dict[TrialSeeds, Any]) -> list[dict[str, Any]]:
    several = len({seeds.holdout for seeds in values}) > 1
    return [
        {"split": at.split, "seed": at.training} | ({"holdout": at.holdout} if several else {}) | {"value": value}
        for at, value in values.items()
    ]
