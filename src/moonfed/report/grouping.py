"""Groups runs by setting, and within a setting by method over its seeds."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from moonfed.core.wording import short_value
from moonfed.report.group_names import describe, distinguishing, name_groups, sort_key
from moonfed.report.methods import (
    DEFAULT_BASELINE,
    Method,
    Setting,
    algorithm_settings,
    shared_settings,
)
from moonfed.storage.run_record import RunRecord
from moonfed.training.accuracy import accuracy
from moonfed.training.evaluation_rows import judged_on_own_rows
from moonfed.training.records import RoundRecord
from moonfed.training.trial_seeds import TrialSeeds


def comparison(named: Sequence[tuple[str, RunRecord]], baseline: str | None = None) -> list[Setting]:
    """Group the trials of one command by the names they were given there: global models, then personal ones."""
    groups: dict[bool, dict[str, list[RunRecord]]] = {}
    for name, record in named:
        groups.setdefault(judged_on_own_rows(record.config), {}).setdefault(name, []).append(record)
    settings: list[Setting] = []
    for own_rows in sorted(groups):
        methods = [Method(name, records) for name, records in groups[own_rows].items()]
        there = baseline if baseline in groups[own_rows] else None
        reference = None if there or not own_rows else global_model(settings[0].methods if settings else [])
        first = methods[0].records[0]
        settings.append(Setting(describe(shared_settings(first), first.topology), methods, there, reference))
    return settings


def by_accuracy(named: Sequence[tuple[str, RunRecord]]) -> list[tuple[str, RunRecord]]:
    """Sort the trials of a command by their method's mean accuracy, the best first."""
    found: dict[str, list[float]] = {}
    for name, record in named:
        found.setdefault(name, []).append(0.0 if record.failure else accuracy(record.rows) or 0.0)
    return sorted(named, key=lambda trial: -statistics.fmean(found[trial[0]]))


def global_model(methods: Sequence[Method]) -> Method | None:
    """The global model of FedAvg on the rows that personal models are judged on; None where it was not trained."""
    found = next((method for method in methods if method.name == DEFAULT_BASELINE), None)
    if found is None or any(record.is_graph for record in found.records):  # no party has the consensus model
        return None
    if not all("accuracy_at_party" in row for r in found.records for row in _evaluated(r.rows)):
        return None
    records = [replace(record, rows=[_at_parties(row) for row in record.rows]) for record in found.records]
    return Method(f"{found.name} (global)", records)


def _evaluated(rows: Sequence[RoundRecord]) -> list[RoundRecord]:
    return [row for row in rows if row["accuracy"] is not None]


def _at_parties(row: RoundRecord) -> RoundRecord:
    """Replace the accuracy of a round by its mean over the parties' own rows."""
    at: Any = row.get("accuracy_at_party") or []
    known = [value for value in at if value is not None]
    changed: Any = dict(row) | {"accuracy": statistics.fmean(known) if known else None}
    return changed


def settings_of(records: Sequence[RunRecord]) -> list[Setting]:
    """Group records by setting, in the order of the settings that tell them apart, and within a setting by method."""
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        groups.setdefault(_key(shared_settings(record)), []).append(record)
    keys = distinguishing([shared_settings(group[0]) for group in groups.values()])
    ordered = sorted(groups.values(), key=lambda group: sort_key(shared_settings(group[0]), keys))
    titles = name_groups([shared_settings(group[0]) for group in ordered])
    settings = [Setting(title, _methods(group)) for title, group in zip(titles, ordered, strict=True)]
    return [_with_reference(setting, settings) for setting in settings]


def _with_reference(setting: Setting, settings: Sequence[Setting]) -> Setting:
    """Give personal models the global model of the same setting to be compared with, where there is one."""
    key = shared_settings(setting.methods[0].records[0])
    if not key["own_rows"]:
        return setting
    same = [s for s in settings if shared_settings(s.methods[0].records[0]) == key | {"own_rows": False}]
    return replace(setting, reference=global_model(same[0].methods) if same else None)


def _methods(records: Sequence[RunRecord]) -> list[Method]:
    groups: dict[str, dict[TrialSeeds, list[RunRecord]]] = {}
    for record in records:
        group = groups.setdefault(_key([record.algorithm, algorithm_settings(record)]), {})
        group.setdefault(record.seeds, []).append(record)
    # If several folders hold the same trial, the one with the most rounds counts, and of equals the first.
    chosen = [
        {seeds: max(same, key=lambda r: (r.finished, len(r.rows))) for seeds, same in sorted(group.items())}
        for group in groups.values()
    ]
    firsts = [next(iter(group.values())) for group in chosen]
    methods: list[Method] = []
    for first, group, candidates in zip(firsts, chosen, groups.values(), strict=True):
        others = [algorithm_settings(other) for other in firsts if other.algorithm == first.algorithm]
        options = _differing(algorithm_settings(first), others)
        label = ",".join(f"{k}={short_value(v)}" for k, v in options.items())
        name = f"{first.algorithm}:{label}" if label else first.algorithm
        duplicates = [record for same in candidates.values() for record in same if record is not group[record.seeds]]
        methods.append(Method(name, list(group.values()), tuple(duplicates)))
    return methods


def _differing(settings: dict[str, Any], others: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {k: v for k, v in settings.items() if any(other.get(k) != v for other in others)}


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
