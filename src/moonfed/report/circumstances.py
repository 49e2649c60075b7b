"""What was run: methods, seeds, settings, machines."""

import json
from collections.abc import Sequence
from typing import Any

from moonfed.experiments.statistics import last_ten
from moonfed.report.blocks import Block, Folded, Paragraph, Section, Table
from moonfed.report.methods import Setting, algorithm_settings
from moonfed.report.sections import NONE, joined
from moonfed.storage.run_folder import last_accuracy
from moonfed.storage.run_record import RunRecord


def lead(settings: Sequence[Setting]) -> str:
    """Say in two sentences what the page is about."""
    records = _records(settings)
    methods = dict.fromkeys(method.name for setting in settings for method in setting.methods)
    done = sum(record.finished for record in records)
    state = "all of them finished" if done == len(records) else f"{done} of them finished"
    data = joined(setting.config.data.dataset for setting in settings)
    judged = " or ".join(dict.fromkeys(setting.config.data.judged_on for setting in settings))
    return (
        f"{_count(len(records), 'trial')} of {_count(len(methods), 'method')} on {data}, {state}. "
        f"Accuracies are on {judged}; the last ten rounds count, never the best one."
    )


def overview(settings: Sequence[Setting]) -> Section:
    """List every method of every setting with its own settings and seeds, and the machines."""
    rows: list[list[str]] = []
    several = len(settings) > 1
    for setting in settings:
        for method in setting.methods:
            first = method.records[0]
            own = joined(f"{k} {_shown(v)}" for k, v in algorithm_settings(first).items()) or "none"
            seeds = joined(record.seeds[1] for record in method.records)
            splits = joined(record.seeds[0] for record in method.records)
            done = f"{sum(record.finished for record in method.records)} of {len(method.records)}"
            rows.append([method.name, *([setting.title] if several else []), own, seeds, splits, done])
    columns = ["method", *(["setting"] if several else []), "settings of its own", "seeds", "split seeds", "finished"]
    words = len(columns) - 1
    blocks: list[Block] = [Table("methods", "Methods", columns, rows, words)]
    if several:
        note = "Settings in which they differ are in their titles; methods are compared within a setting only."
        blocks.append(Paragraph(f"There are {len(settings)} settings. {note}"))
    return Section("What was run", [*blocks, machines(settings)])


def machines(settings: Sequence[Setting]) -> Table:
    """List the machines and versions, with the number of trials that saw each."""
    seen: dict[str, list[RunRecord]] = {}
    for record in _records(settings):
        parts = [{"machine": record.machine, "versions": record.versions}, *record.before]
        for key in dict.fromkeys(json.dumps([p.get("machine"), p.get("versions")], sort_keys=True) for p in parts):
            seen.setdefault(key, []).append(record)
    rows: list[list[str]] = []
    for key, records in seen.items():
        machine, versions = (part if isinstance(part, dict) else {} for part in json.loads(key))
        cpu = f"{machine.get('cpu')}, {machine.get('cores')} cores, {machine.get('threads')} threads" if machine else ""
        devices = joined(record.config.run.device for record in records)
        words = [str(machine.get("system") or "not recorded"), cpu, str(machine.get("gpu") or "none"), devices]
        made = ", ".join(f"{name} {number}" for name, number in versions.items())
        rows.append([*words, made or "not recorded", str(len(records))])
    note = (
        "A trial that was resumed elsewhere counts for each machine."
        if any(r.before for r in _records(settings))
        else ""
    )
    return Table(
        "machines", "Machines", ["system", "CPU", "GPU", "device asked for", "versions", "trials"], rows, 5, [], note
    )


def all_settings(setting: Setting, name: str) -> list[Block]:
    """Every setting of every method and every trial, folded."""
    records = [record for method in setting.methods for record in method.records]
    values: dict[str, list[Any]] = {}
    for record in records:
        dumped = record.config.model_dump(mode="json")
        for section in ("data", "model", "train", "cohort", "run"):
            for key, value in dumped[section].items():
                values.setdefault(f"{section}.{key}", []).append(value)
    shared = [[key, _shown(found[0])] for key, found in values.items() if all(v == found[0] for v in found)]
    differing = [
        [key, joined(map(_shown, found))] for key, found in values.items() if any(v != found[0] for v in found)
    ]
    for method in setting.methods:
        own = algorithm_settings(method.records[0])
        differing.append([f"{method.name}: algorithm", method.records[0].algorithm])
        differing += [[f"{method.name}: {key}", _shown(value)] for key, value in own.items()]
    tables: list[Block] = [
        Table(f"{name}-settings-differ", "Settings that differ between trials", ["setting", "value"], differing, 2),
        Table(f"{name}-settings-shared", "Settings that all trials share", ["setting", "value"], shared, 2),
    ]
    return [Folded("All settings", tables), Folded("Every trial", [trials(setting, f"{name}-trials")])]


def trials(setting: Setting, name: str) -> Table:
    """List every trial with its own numbers, also those that do not count."""
    rows: list[list[str]] = []
    for method in setting.methods:
        for record in method.records:
            numbers = [NONE if value is None else f"{100 * value:.2f}" for value in _numbers(record)]
            split, seed = record.seeds
            place = record.folder.as_posix()
            rows.append([method.name, str(seed), str(split), place, record.state, str(len(record.rows)), *numbers])
    columns = ["method", "seed", "split seed", "folder", "state", "rounds", "mean of last 10, %", "last round, %"]
    return Table(name, "Trials", columns, rows, 5)


def _numbers(record: RunRecord) -> tuple[float | None, float | None]:
    return last_ten(record.rows), last_accuracy(record.rows)


def _records(settings: Sequence[Setting]) -> list[RunRecord]:
    return [record for setting in settings for method in setting.methods for record in method.records]


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return "default" if value is None else str(value)
