"""The final models in detail: quality of probabilities, accuracy by party and by class, confusion of classes.

All figures are means over the finished trials of a method, read from their evaluation.json.
"""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moonfed.data.catalog.image_sets import CLASS_NAMES
from moonfed.report.blocks import Block, Details, Paragraph, Section, Table
from moonfed.report.by_party import MAX_PARTIES_SHOWN, accuracy_by_party, party_table
from moonfed.report.cell_text import EMPTY, slug
from moonfed.report.figures import colour
from moonfed.report.final_metrics import metrics_table
from moonfed.report.methods import Method, Setting
from moonfed.storage.run_record import RunRecord
from moonfed.training.evaluation_rows import judged_on_own_rows
from moonfed.training.metrics import METRIC_NAMES

Shares = NDArray[np.float64]  # [true class, predicted class]: share of the rows of a true class; nan without rows
MAX_CLASSES_SHOWN = 20
MAX_MATRIX_CLASSES = 15  # beyond which the most frequent confusions are listed instead of a matrix
MAX_CONFUSIONS = 15


def final_models_section(setting: Setting, name: str) -> Section | None:
    """Show the final models; None if no trial has an evaluation."""
    blocks: list[Block] = []
    metrics = metrics_table(setting)
    if metrics is not None:
        colours = [colour(place) for place in range(len(metrics.rows))]
        caption = "Probabilities of the final models"
        blocks.append(replace(metrics, name=f"{name}-metrics", caption=caption, colours=colours))
    parties = _party_table(setting, f"{name}-parties")
    if parties is not None:
        blocks.append(Details("Accuracy by party", [parties]))
    shares = {m.name: matrix for m in setting.methods if (matrix := confusion_shares(_final(m))) is not None}
    if shares:
        names = class_names(setting.methods[0].records[0], max(len(matrix) for matrix in shares.values()))
        shares = {method: matrix for method, matrix in shares.items() if len(matrix) == len(names)}
        basis = f"mean over the {setting.noun}s.{_whose(setting)}"
        blocks.append(Details("Accuracy by class", [class_table(shares, names, f"{name}-classes", basis)]))
        blocks.append(Details("Confusion of classes", _confusions(shares, names, f"{name}-confusion", basis)))
    return Section("Final models", blocks, 3) if blocks else None


def _whose(setting: Setting) -> str:
    """Say whose predictions are counted, on which rows, where it is not the model that accuracies are of."""
    if judged_on_own_rows(setting.config):
        return " Of the parties' own models, on all rows."
    on_graph = any(record.is_graph for method in setting.methods for record in method.records)
    return " In a graph, of the consensus models." if on_graph else ""


def class_names(record: RunRecord, classes: int) -> list[str]:
    """Names of a run's classes: those of its data, else those of a published data set, else numbers."""
    given: Any = record.description.get("classes")
    names = given if isinstance(given, list) and given else CLASS_NAMES.get(record.config.data.dataset, ())
    return [str(name) for name in names] if len(names) == classes else [str(k) for k in range(classes)]


def confusion_shares(records: Sequence[RunRecord]) -> Shares | None:
    """Share of each true class that is predicted as each class, mean over trials; None without an evaluation."""
    by_trial: list[Shares] = []
    for record in records:
        counts: Any = record.evaluation.get("confusion")
        try:
            matrix = np.array(counts, dtype=np.float64)
        except (TypeError, ValueError):  # a damaged file; the figures that depend on it are left out
            continue
        if matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1]:
            rows = matrix.sum(1, keepdims=True)
            by_trial.append(np.divide(matrix, rows, out=np.full_like(matrix, np.nan), where=rows > 0))
    same = [matrix for matrix in by_trial if matrix.shape == by_trial[0].shape]
    return np.mean(same, axis=0) if same else None


def class_table(shares: dict[str, Shares], names: Sequence[str], name: str, basis: str) -> Table:
    """Accuracy on each class, a column per method; of many classes only the worst are listed."""
    by_class = np.stack([matrix.diagonal() for matrix in shares.values()], 1)  # [class, method]
    order = list(range(len(names)))
    note = f"Share of the rows of each class that are predicted correctly, {basis}"
    if len(names) > MAX_CLASSES_SHOWN:
        worst = np.nan_to_num(by_class, nan=2.0).mean(1)
        order = sorted(order, key=lambda k: float(worst[k]))[:MAX_CLASSES_SHOWN]
        note += f" The {MAX_CLASSES_SHOWN} worst of {len(names)} classes."
    rows = [[names[k], *(_percent(value) for value in by_class[k])] for k in order]
    return Table(name, "Accuracy by class, %", ["class", *shares], rows, note=note)


def _confusions(shares: dict[str, Shares], names: Sequence[str], name: str, basis: str) -> list[Block]:
    """A matrix per method, or with many classes the most frequent confusions."""
    if len(names) > MAX_MATRIX_CLASSES:
        return [_frequent(method, matrix, names, f"{name}-{slug(method)}") for method, matrix in shares.items()]
    text = f"How many of the rows of each true class (row) are predicted as each class (column), in %, {basis}"
    tables = [_matrix(method, matrix, names, f"{name}-{slug(method)}") for method, matrix in shares.items()]
    return [Paragraph(text), *tables]


def _matrix(method: str, shares: Shares, names: Sequence[str], name: str) -> Table:
    """The confusion matrix of a method, shaded."""
    cells = np.nan_to_num(shares)
    rows = [
        [names[k], *(_percent(value) if np.isnan(value) or value >= 0.0005 else "·" for value in shares[k])]
        for k in range(len(names))
    ]
    return Table(
        name,
        f"Confusion by {method}, %",
        ["true class", *names],
        rows,
        shades=[[float(v) for v in row] for row in cells],
    )


def _frequent(method: str, shares: Shares, names: Sequence[str], name: str) -> Table:
    """The pairs of classes that a method confuses most."""
    wrong = np.nan_to_num(shares) * (1 - np.eye(len(names)))
    order = [np.unravel_index(int(at), wrong.shape) for at in np.argsort(-wrong, axis=None, kind="stable")]
    pairs = [(int(true), int(said)) for true, said in order[:MAX_CONFUSIONS] if wrong[true, said] > 0]
    rows = [[names[true], names[said], _percent(wrong[true, said])] for true, said in pairs]
    caption = f"Most frequent confusions by {method}"
    return Table(name, caption, ["true class", "predicted as", "% of the true class"], rows, "llr")


def _party_table(setting: Setting, name: str) -> Table | None:
    """Accuracy by party: by name where parties have names, else from the worst to the best party of each split."""
    named = [(method.name, record) for method in setting.methods for record in _final(method)]
    parties = accuracy_by_party(named)
    by_party = [figures for _, record in named for figures in record.evaluation.get("by_party", {}).values()]
    if any(key in figures for figures in by_party for key in METRIC_NAMES):
        return _party_metrics(setting, name)
    if parties:
        table = party_table(parties)
        return None if table is None else replace(table, name=name, caption="Final accuracy by party")
    return _ranked_parties(setting, name)


def _party_metrics(setting: Setting, name: str) -> Table:
    """Accuracy and metrics of each method at each named party, means over the seeds."""
    values: dict[tuple[str, str, str], list[float]] = {}
    parties: dict[str, Any] = {}
    for method in setting.methods:
        for record in _final(method):
            for party, figures in record.evaluation.get("by_party", {}).items():
                parties.setdefault(party, figures["test_rows"])
                for key in ("accuracy", *METRIC_NAMES):
                    if figures.get(key) is not None:
                        values.setdefault((party, method.name, key), []).append(figures[key])
    known = [key for key in METRIC_NAMES if any(key == measured for _, _, measured in values)]
    listed = list(parties)
    if len(parties) > MAX_PARTIES_SHOWN:
        worst = {party: min(_accuracies(values, party), default=2.0) for party in parties}
        listed = sorted(parties, key=lambda party: worst[party])[:MAX_PARTIES_SHOWN]
    rows: list[list[str]] = []
    colours: list[str] = []
    for party in listed:
        for method in setting.methods:
            by_key = [values.get((party, method.name, key), []) for key in ("accuracy", *known)]
            accuracy, *metrics = [statistics.fmean(by_seed) if by_seed else None for by_seed in by_key]
            cells = [EMPTY if accuracy is None else _percent(accuracy)]
            cells += [EMPTY if metric is None else f"{metric:.3f}" for metric in metrics]
            rows.append([f"{party}, {parties[party]} {setting.config.data.judged} rows", method.name, *cells])
            colours.append(colour(setting.place(method)))
    columns = ["party", "method", "accuracy, %", *(METRIC_NAMES[key] for key in known)]
    some = f" The {MAX_PARTIES_SHOWN} worst of {len(parties)} parties." if len(parties) > len(listed) else ""
    note = f"Final models on each party's own {setting.config.data.judged} rows; mean over the {setting.noun}s.{some}"
    align = "ll" + "r" * (len(columns) - 2)
    return Table(name, "Final models by party", columns, rows, align, colours, note, grouped=True)


def _accuracies(values: dict[tuple[str, str, str], list[float]], party: str) -> list[float]:
    return [statistics.fmean(by_seed) for (at, _, key), by_seed in values.items() if (at, key) == (party, "accuracy")]


def _ranked_parties(setting: Setting, name: str) -> Table | None:
    """Accuracy at the worst, the median and the best party: parties of simulated splits differ from seed to seed."""
    by_method: dict[str, list[tuple[float, float, float]]] = {}
    for method in setting.methods:
        for record in _final(method):
            own = record.evaluation.get("accuracy_by_party") if judged_on_own_rows(record.config) else None
            found = own or record.evaluation.get("accuracy_at_party") or []
            values = [v for v in found if isinstance(v, int | float)]
            if values:
                by_method.setdefault(method.name, []).append((min(values), statistics.median(values), max(values)))
    if not by_method:
        return None
    rows = [
        [method, *(_percent(statistics.fmean(trial[k] for trial in trials)) for k in range(3))]
        for method, trials in by_method.items()
    ]
    note = (
        "A party's accuracy is that on test rows with its class shares. Parties differ from split to split, so each "
        f"trial's worst, median and best party are averaged over the {setting.noun}s. The model is the global one, "
        "in a graph the consensus model, of personal methods the party's own."
    )
    columns = ["method", "worst party, %", "median party, %", "best party, %"]
    colours = [colour(setting.place(method)) for method in setting.methods if method.name in by_method]
    return Table(name, "Final accuracy by party", columns, rows, colours=colours, note=note)


def _final(method: Method) -> list[RunRecord]:
    """The finished trials of a method, which have an evaluation."""
    return [record for record in method.records if record.finished]


def _percent(value: float) -> str:
    return EMPTY if np.isnan(value) else f"{100 * value:.1f}"
