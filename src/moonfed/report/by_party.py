"""Accuracy of the final models at each named party."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moonfed.report.blocks import Table
from moonfed.storage.run_record import RunRecord
from moonfed.training.metrics import METRIC_NAMES

MAX_PARTIES_SHOWN = 40
MAX_METHOD_COLUMNS = 6  # with more, methods are rows
MAX_PARTY_COLUMNS = 5


@dataclass(frozen=True)
class PartyAccuracy:
    """One party: its training rows, its test rows, and each method's mean accuracy on those over the seeds."""

    party: str
    training_rows: int
    test_rows: int
    accuracies: dict[str, float | None]
    judged: str = "test"  # or held-out: the kind of rows that test_rows counts
    model: str = ""  # whose accuracy it is, where that is not the method's only model


def accuracy_by_party(outcomes: Sequence[tuple[str, RunRecord]]) -> list[PartyAccuracy]:
    """Read the accuracy at each party from finished trials; empty where parties have no names."""
    parties: dict[str, PartyAccuracy] = {}
    values: dict[tuple[str, str], list[float]] = {}
    methods = list(dict.fromkeys(name for name, _ in outcomes))
    for method, outcome in outcomes:
        kind, model = outcome.config.data.judged, " of the consensus model" if outcome.is_graph else ""
        for party, figures in outcome.evaluation.get("by_party", {}).items():
            rows = (figures["training_rows"], figures["test_rows"])
            parties.setdefault(party, PartyAccuracy(party, *rows, dict.fromkeys(methods), kind, model))
            if figures["accuracy"] is not None:
                values.setdefault((party, method), []).append(figures["accuracy"])
    for (party, method), accuracies in values.items():
        parties[party].accuracies[method] = statistics.fmean(accuracies)
    return list(parties.values())


def party_table(
    parties: Sequence[PartyAccuracy], metrics: Mapping[str, Mapping[str, Any]] | None = None
) -> Table | None:
    """Table of the accuracy at each party, and of metrics where they are given; None without parties.

    Of many parties only the worst are listed.
    """
    if not parties:
        return None
    if len(parties[0].accuracies) > MAX_METHOD_COLUMNS:
        return _method_table(parties)
    judged = f"{parties[0].judged} rows"
    listed = list(parties)
    some = ""
    if len(parties) > MAX_PARTIES_SHOWN:
        listed = sorted(parties, key=_worst_accuracy)[:MAX_PARTIES_SHOWN]
        some = f"; the {MAX_PARTIES_SHOWN} worst of {len(parties)} parties"
    rows = [
        [at.party, str(at.training_rows), str(at.test_rows)]
        + [f"no {judged}" if value is None else f"{value:.1%}" for value in at.accuracies.values()]
        for at in listed
    ]
    methods = [method or "final accuracy" for method in parties[0].accuracies]
    known = [name for name in METRIC_NAMES if metrics and any(name in figures for figures in metrics.values())]
    for row, at in zip(rows, listed, strict=True):
        figures = [(metrics or {}).get(at.party, {}).get(name) for name in known]
        row += ["" if figure is None else f"{figure:.3f}" for figure in figures]
    note = f"final accuracy{parties[0].model} on each party's own {judged}{some}"
    columns = ["party", "rows", judged, *methods, *(METRIC_NAMES[name] for name in known)]
    return Table("parties", "", columns, rows, note=note)


def _method_table(parties: Sequence[PartyAccuracy]) -> Table:
    """Table of many methods: their accuracy at each of a few parties, else their mean and worst party."""
    rows: list[list[str]] = []
    few = len(parties) <= MAX_PARTY_COLUMNS
    for method in parties[0].accuracies:
        known = {at.party: value for at in parties if (value := at.accuracies[method]) is not None}
        if few:
            rows.append([method, *(f"{known[at.party]:.1%}" if at.party in known else "" for at in parties)])
        elif known:
            worst = min(known, key=lambda party: known[party])
            rows.append([method, f"{statistics.fmean(known.values()):.1%}", f"{known[worst]:.1%}", worst])
    columns = [at.party for at in parties] if few else ["mean of parties", "worst party", "which"]
    align = "l" + "r" * len(parties) if few else "lrrl"
    note = f"final accuracy{parties[0].model} on each party's own {parties[0].judged} rows"
    return Table("parties", "", ["method", *columns], rows, align, note=note)


def _worst_accuracy(at: PartyAccuracy) -> float:
    return min([value for value in at.accuracies.values() if value is not None], default=2.0)
