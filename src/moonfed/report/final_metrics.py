"""How good the probabilities of the final models are, over the seeds of each method."""

import statistics

from moonfed.report.blocks import Table
from moonfed.report.methods import Method, Setting
from moonfed.storage.run_record import TrialSeeds
from moonfed.training.metrics import METRIC_NAMES


def metrics_table(setting: Setting, kind: str = "method") -> Table | None:
    """Table of the metrics by method; None where no trial has any, as in runs of earlier versions."""
    values = {m.name: {k: m.independent(found) for k, found in m.metrics.items()} for m in setting.methods}
    known = [name for name in METRIC_NAMES if any(name in found for found in values.values())]
    if not known:
        return None
    rows = [
        [method, *(f"{statistics.fmean(found[name]):.3f}" if name in found else "" for name in known)]
        for method, found in values.items()
    ]
    note = f"Of the final models, on {setting.config.data.judged_on}; mean over the {setting.noun}s."
    records = [record for method in setting.methods for record in method.records]
    positive = next((record.evaluation["positive"] for record in records if "positive" in record.evaluation), None)
    note += "" if positive is None else f" AUC, sensitivity, specificity: the positive class is {positive}."
    note += _calibration_note(setting)
    return Table("metrics", "", [kind, *(METRIC_NAMES[name] for name in known)], rows, note=note)


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
