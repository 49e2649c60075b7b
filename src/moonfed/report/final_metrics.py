"""How good the probabilities of the final models are, over the seeds of each method."""

import statistics

from moonfed.report.blocks import Table
from moonfed.report.methods import Setting
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
    return Table("metrics", "", [kind, *(METRIC_NAMES[name] for name in known)], rows, note=note)
