"""What was run: methods, seeds, settings, machines."""

import json
from collections.abc import Sequence
from typing import Any

from moonfed.core.wording import counted
from moonfed.report.blocks import Block, Details, Section, Table
from moonfed.report.cell_text import EMPTY, joined
from moonfed.report.methods import Setting, algorithm_settings
from moonfed.storage.run_record import RunRecord
from moonfed.training.accuracy import accuracy, final_accuracy
from moonfed.training.evaluation_rows import judged_on


def introduction(settings: Sequence[Setting]) -> str:
    """Summarise in two sentences what the page is about."""
    records = _records(settings)
    methods = dict.fromkeys(method.name for setting in settings for method in setting.methods)
    done = sum(record.finished for record in records)
    state = "all of them finished" if done == len(records) else f"{done} of them finished"
    data = joined(setting.config.data.dataset for setting in settings)
    judged = " or ".join(dict.fromkeys(judged_on(s.methods[0].records[0].config) for s in settings))
    return (
        f"{counted(len(records), 'trial')} of {counted(len(methods), 'method')} on {data}, {state}. "
        f"Accuracies are on {judged}, {_rounds_behind(settings)}."
    )


def _rounds_behind(settings: Sequence[Setting]) -> str:
    """Say which rounds are behind the accuracies; groups with early stopping keep the best round."""
    stopping = sum(setting.config.train.patience > 0 for setting in settings)
    if not stopping:
        return "averaged over the last rounds; the best round is never selected"
    kept = "of the best round, which is selected by the loss on training rows set aside (--patience)"
    if stopping == len(settings):
        return kept
    return f"in {stopping} of {counted(len(settings), 'group')} {kept}, in the others averaged over the last rounds"


def overview(settings: Sequence[Setting]) -> Section:
    """List every method of every setting with its options and seeds, and the machines."""
    rows: list[list[str]] = []
    several = len(settings) > 1
    for setting in settings:
        for method in setting.methods:
            first = method.records[0]
            options = joined(f"{k} {_value_text(v)}" for k, v in algorithm_settings(first).items()) or "none"
            seeds = joined(record.seeds.training for record in method.records)
            splits = joined(record.seeds.split for record in method.records)
            done = f"{sum(record.finished for record in method.records)} of {len(method.records)}"
            rows.append([*([setting.title] if several else []), method.name, options, seeds, splits, done])
    columns = [*(["group"] if several else []), "method", "options", "seeds", "split seeds", "finished"]
    align = "l" * (len(columns) - 1) + "r"
    methods = Table("methods", "Methods", columns, rows, align, grouped=several)
    return Section("What was run", [Details("Methods and seeds", [methods]), Details("Machines", [machines(settings)])])


def machines(settings: Sequence[Setting]) -> Table:
    """List the machines and versions, with the number of trials that ran on each."""
    by_machine: dict[str, list[RunRecord]] = {}
    for record in _records(settings):
        parts = [{"machine": record.machine, "versions": record.versions}, *record.before]
        for key in dict.fromkeys(json.dumps([p.get("machine"), p.get("versions")], sort_keys=True) for p in parts):
            by_machine.setdefault(key, []).append(record)
    rows: list[list[str]] = []
    for key, records in by_machine.items():
        machine, versions = (part if isinstance(part, dict) else {} for part in json.loads(key))
        cpu = f"{machine.get('cpu')}, {machine.get('cores')} cores, {machine.get('threads')} threads" if machine else ""
        devices = joined(record.config.run.device for record in records)
        words = [str(machine.get("system") or "not recorded"), cpu, str(machine.get("gpu") or "none"), devices]
        packages = ", ".join(f"{name} {number}" for name, number in versions.items())
        rows.append([*words, packages or "not recorded", str(len(records))])
    resumed = any(record.before for record in _records(settings))
    note = "A trial that was resumed on another machine counts for each." if resumed else ""
    columns = ["system", "CPU", "GPU", "device requested", "versions", "trials"]
    return Table("machines", "Machines", columns, rows, "lllllr", note=note)


def all_settings(setting: Setting, name: str) -> list[Block]:
    """Every setting of every method and every trial, collapsed."""
    records = [record for method in setting.methods for record in method.records]
    values: dict[str, list[Any]] = {}
    for record in records:
        dumped = record.config.model_dump(mode="json")
        for section in ("data", "model", "train", "cohort", "run"):
            for key, value in dumped[section].items():
                values.setdefault(f"{section}.{key}", []).append(value)
    shared = [[key, _value_text(found[0])] for key, found in values.items() if all(v == found[0] for v in found)]
    differing = [
        [key, joined(map(_value_text, found))] for key, found in values.items() if any(v != found[0] for v in found)
    ]
    for method in setting.methods:
        options = algorithm_settings(method.records[0])
        differing.append([f"{method.name}: algorithm", method.records[0].algorithm])
        differing += [[f"{method.name}: {key}", _value_text(value)] for key, value in options.items()]
    columns = ["setting", "value"]
    tables: list[Block] = [
        Table(f"{name}-settings-differ", "Settings that differ between trials", columns, differing, "ll"),
        Table(f"{name}-settings-shared", "Settings that all trials share", columns, shared, "ll"),
    ]
    return [Details("All settings", tables), Details("Every trial", [trials_table(setting, f"{name}-trials")])]


def trials_table(setting: Setting, name: str) -> Table:
    """List every trial with its own numbers, including those left out of the means."""
    rows: list[list[str]] = []
    several = any(method.unit for method in setting.methods)
    for method in setting.methods:
        for record in method.records:
            values = accuracy(record.rows), final_accuracy(record.rows)
            numbers = [EMPTY if value is None else f"{100 * value:.2f}" for value in values]
            split, seed, holdout = record.seeds
            place = record.folder.as_posix()
            rows.append(
                [
                    method.name,
                    str(seed),
                    str(split),
                    *([str(holdout)] if several else []),
                    place,
                    record.state,
                    str(len(record.rows)),
                    *numbers,
                ]
            )
    columns = ["method", "seed", "split seed", *(["hold-out seed"] if several else []), "folder", "state", "rounds"]
    columns += ["accuracy, %", "final accuracy, %"]
    return Table(name, "Trials", columns, rows, "l" * (len(columns) - 3) + "rrr")


def _records(settings: Sequence[Setting]) -> list[RunRecord]:
    return [record for setting in settings for method in setting.methods for record in method.records]


def _value_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return "default" if value is None else str(value)
