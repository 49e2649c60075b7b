"""Runs put in order: by setting, and within a setting by method over its seeds."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from moonfed.experiments.statistics import Interval, deviation, last_ten, paired, rounds_to
from moonfed.storage.run_folder import last_accuracy
from moonfed.storage.run_record import RunRecord
from moonfed.training.records import RoundRecord

Seeds = tuple[int, int]  # of the split and of the training
BASE = "fedavg"


@dataclass(frozen=True)
class Method:
    """One method in one setting, over its seeds.

    Its numbers come from the trials that finished. Where none has, they come from those that have not failed, up to
    the last round that all of these have; `partial` says so.
    """

    name: str
    records: list[RunRecord]
    twins: tuple[RunRecord, ...] = ()  # other folders with a trial of these: they are not counted twice

    @cached_property
    def partial(self) -> bool:
        """Whether no trial has finished."""
        return not any(record.finished for record in self.records)

    @cached_property
    def rows(self) -> dict[Seeds, list[RoundRecord]]:
        """The rows of the trials that count."""
        counted = [r for r in self.records if r.finished or (self.partial and r.failure is None and r.rows)]
        shortest = min((len(r.rows) for r in counted), default=0)
        return {r.seeds: r.rows[:shortest] for r in counted}

    @property
    def rounds(self) -> int:
        """How many rounds the numbers rest on."""
        return len(next(iter(self.rows.values()), []))

    @cached_property
    def last_ten(self) -> dict[Seeds, float]:
        """Mean accuracy of the last ten rounds, by seed: the primary figure."""
        return {seeds: mean for seeds, rows in self.rows.items() if (mean := last_ten(rows)) is not None}

    @cached_property
    def last(self) -> dict[Seeds, float]:
        """Accuracy after the last round, by seed."""
        return {seeds: last for seeds, rows in self.rows.items() if (last := last_accuracy(rows)) is not None}

    @property
    def states(self) -> list[str]:
        """What has to be said of trials that did not finish, and of a method with one seed."""
        said = [f"{_seeds(r.seeds)} {r.state}" for r in self.records if not r.finished]
        if self.partial and self.rows:
            said.append(f"numbers up to round {self.rounds} of {self.records[0].config.train.rounds}")
        said += [f"{_seeds(r.seeds)} is in {r.folder.as_posix()} too and not counted twice" for r in self.twins]
        return [*said, "one seed: no spread can be told"] if len(self.rows) == 1 else said

    def mean(self, name: str, per_trial: bool = False) -> float | None:
        """The mean of a figure of the rows over all rounds and seeds; per trial, divided by the trials of its stack."""
        values = [
            row[name] / (row.get("trials_in_stack", 1) if per_trial else 1)
            for rows in self.rows.values()
            for row in rows
        ]
        return statistics.fmean(values) if values else None

    def as_json(self) -> dict[str, Any]:
        """The numbers of the method, accuracies as fractions."""
        return {
            "method": self.name,
            "rounds": self.rounds,
            "asked": self.records[0].config.train.rounds,
            "last_ten": _over_seeds(self.last_ten),
            "last": _over_seeds(self.last),
            "cost": {
                "bytes_up_a_round": self.mean("bytes_up"),
                "bytes_down_a_round": self.mean("bytes_down"),
                "seconds_a_round": self.mean("seconds", per_trial=True),
            },
            "states": self.states,
            "folders": [str(record.folder) for record in self.records],
        }


@dataclass(frozen=True)
class Setting:
    """Methods that differ in their algorithm and in nothing else: they can be compared."""

    title: str
    methods: list[Method]

    @property
    def config(self) -> Any:
        """The settings that all methods share, and those of the first method's algorithm."""
        return self.methods[0].records[0].config

    @cached_property
    def base(self) -> Method:
        """FedAvg if it is there, else the first method."""
        return next((m for m in self.methods if m.name == BASE and m.rows), self.methods[0])

    def against(self, method: Method) -> Interval | None:
        """The difference of a method to the base over the last ten rounds, paired by seed."""
        if method is self.base or method.rounds != self.base.rounds:
            return None
        return paired(method.last_ten, self.base.last_ten)

    def crossings(self, method: Method) -> dict[Seeds, int | None]:
        """By seed, the first round in which a method has what the base has after its last round."""
        targets = self.base.last
        return {seeds: rounds_to(rows, targets[seeds]) for seeds, rows in method.rows.items() if seeds in targets}

    def reached(self, method: Method, target: float) -> dict[Seeds, int | None]:
        """By seed, the first round in which a method reaches a given accuracy."""
        return {seeds: rounds_to(rows, target) for seeds, rows in method.rows.items()}

    def as_json(self, targets: Sequence[float] = ()) -> dict[str, Any]:
        """The numbers of the setting."""
        methods: list[dict[str, Any]] = []
        for method in self.methods:
            gap = self.against(method)
            methods.append(
                method.as_json()
                | {
                    "difference": None if gap is None else gap._asdict(),
                    "rounds_to_base": _by_seed(self.crossings(method)),
                    "rounds_to": {f"{target:g}": _by_seed(self.reached(method, target)) for target in targets},
                }
            )
        return {
            "title": self.title,
            "dataset": self.config.data.dataset,
            "base": self.base.name,
            "methods": methods,
        }


def settings_of(records: Sequence[RunRecord]) -> list[Setting]:
    """Sort records into settings and methods, in the order in which they come."""
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        groups.setdefault(_key(shared_settings(record)), []).append(record)
    titles = _titles([shared_settings(group[0]) for group in groups.values()])
    return [Setting(title, _methods(group)) for title, group in zip(titles, groups.values(), strict=True)]


def shared_settings(record: RunRecord) -> dict[str, Any]:
    """The settings that methods must share to be compared: all but the algorithm, the seeds and where it was run."""
    values = record.config.model_dump(mode="json")
    flat = {name: value for section in ("data", "model", "train", "cohort") for name, value in values[section].items()}
    del flat["partition_seed"]
    return flat | {"precision": values["run"]["precision"]}


def algorithm_settings(record: RunRecord) -> dict[str, Any]:
    """The settings of a record's algorithm."""
    return dict(record.config.algorithm.options)


def _methods(records: Sequence[RunRecord]) -> list[Method]:
    groups: dict[str, dict[Seeds, list[RunRecord]]] = {}
    for record in records:
        group = groups.setdefault(_key([record.algorithm, algorithm_settings(record)]), {})
        group.setdefault(record.seeds, []).append(record)
    # Of a trial that several folders hold, the one that came furthest counts, and of those the first.
    chosen = [
        {seeds: max(same, key=lambda r: (r.finished, len(r.rows))) for seeds, same in sorted(group.items())}
        for group in groups.values()
    ]
    firsts = [next(iter(group.values())) for group in chosen]
    found: list[Method] = []
    for first, group, all in zip(firsts, chosen, groups.values(), strict=True):
        like = [algorithm_settings(other) for other in firsts if other.algorithm == first.algorithm]
        mine = algorithm_settings(first)
        told = ",".join(f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in _differing(mine, like).items())
        name = f"{first.algorithm}:{told}" if told else first.algorithm
        twins = [record for same in all.values() for record in same if record is not group[record.seeds]]
        found.append(Method(name, list(group.values()), tuple(twins)))
    return found


def _titles(shared: Sequence[dict[str, Any]]) -> list[str]:
    """Name each setting by its data and by what tells it from the others."""
    found: list[str] = []
    for mine in shared:
        skew = f" (beta {mine['beta']:g})" if mine["partition"] in ("dirichlet", "dirichlet-pure", "quantity") else ""
        title = (
            f"{mine['dataset']}: {mine['parties']} parties, {mine['partition']} split{skew}, {mine['rounds']} rounds"
        )
        said = ("dataset", "parties", "partition", "beta", "rounds")
        more = [
            f"{k.replace('_', ' ')} {v:g}" if isinstance(v, float) else f"{k.replace('_', ' ')} {v}"
            for k, v in _differing(mine, shared).items()
            if k not in said and v is not None
        ]
        found.append(", ".join([title, *more]))
    return found


def _differing(mine: dict[str, Any], all: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {k: v for k, v in mine.items() if any(other.get(k) != v for other in all)}


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _seeds(seeds: Seeds) -> str:
    return f"seed {seeds[1]}" if seeds[0] == seeds[1] else f"seed {seeds[1]} on split {seeds[0]}"


def _by_seed(values: dict[Seeds, Any]) -> list[dict[str, Any]]:
    return [{"split": split, "seed": seed, "value": value} for (split, seed), value in values.items()]


def _over_seeds(values: dict[Seeds, float]) -> dict[str, Any]:
    found = list(values.values())
    mean = statistics.fmean(found) if found else None
    return {"mean": mean, "sd": deviation(found), "by_seed": _by_seed(values)}
