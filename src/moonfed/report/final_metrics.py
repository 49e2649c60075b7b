"""How good the probabilities of the final models are, over the seeds of each method."""

import statistics

from moonfed.report.blocks import Table
from moonfed.report.methods import Method, Setting
from moonfed.report.trial_cost import traffic_cells
from moonfed.storage.run_record import TrialSeeds
from moonfed.training.evaluation_rows import judged_on_own_rows
from moonfed.training.metrics import METRIC_NAMES
from moonfed.training.registry import preset_of


def metrics_table(setting: Setting, kind: str = "method", with_traffic: bool = False) -> Table | None:
    """Table of the metrics by method, if asked with the bytes of a trial where methods differ in them.

    None where no trial has any metrics, as in runs of earlier versions.
    """
    judged = setting.config.data.judged_on
    values = {m.name: {k: m.independent(found) for k, found in m.metrics.items()} for m in setting.methods}
    known = [name for name in METRIC_NAMES if any(name in found for found in values.values())]
    if not known:
        return None
    traffic = traffic_cells(setting) if with_traffic else []
    rows: list[list[str]] = []
    for place, (method, found) in enumerate(values.items()):
        cells = [f"{statistics.fmean(found[name]):.3f}" if name in found else "" for name in known]
        rows.append([method, *cells, *traffic[place : place + 1]])
    records = [record for method in setting.methods for record in method.records]
    own_rows = judged_on_own_rows(records[0].config)
    everywhere = f"Of the parties' own models, on all {setting.config.data.judged} rows"
    models = "consensus models" if any(record.is_graph for record in records) else "final models"
    which = everywhere if own_rows else f"Of the {models}, on {judged}"
    note = f"{which}; mean over the {setting.noun}s."
    positive = next((record.evaluation["positive"] for record in records if "positive" in record.evaluation), None)
    note += "" if positive is None else f" AUC, sensitivity, specificity: the positive class is {positive}."
    note += _calibration_note(setting)
    columns = [kind, *(METRIC_NAMES[name] for name in known)]
    if traffic:
        columns, note = [*columns, "MB in all"], f"{note} MB are up and down, all parties and rounds of a trial."
        if any(preset_of(r.config.algorithm.name, r.config.algorithm.server).phases for r in records):
            note += " A phase asks all parties in every evaluated round: fewer with a larger --evaluate-every."
    return Table("metrics", "", columns, rows, note=note)


def _calibration_note(setting: Setting) -> str:
    """Give the temperature and the log loss before it of each calibrated method; empty where there is none."""
    found = [f"{method.name} {text}" for method in setting.methods if (text := _calibration_text(method))]
    return f" Calibrated: {', '.join(found)}." if found else ""


def _calibration_text(method: Method) -> str:
    """Give the means over a method's trials; a damaged evaluation is left out."""
    temperatures: dict[TrialSeeds, float] = {}
    before: dict[TrialSeeds, float] = {}
    for record in method.records:
        temperature, plain = (record.evaluation.get(key) for key in ("temperature", "uncalibrated"))
        loss = plain.get("log_loss") if isinstance(plain, dict) else None
        if isinstance(temperature, int | float) and isinstance(loss, int | float):
            temperatures[record.seeds], before[record.seeds] = temperature, loss
    if not temperatures:
        return ""
    temperature, loss = (statistics.fmean(method.independent(values)) for values in (temperatures, before))
    return f"with temperature {temperature:.2f} (log loss before: {loss:.3f})"
