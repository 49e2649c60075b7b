"""How the final models do at each party, where the data says whose its rows are."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from moonfed.core.errors import UserError
from moonfed.core.files import read_json
from moonfed.storage.run_folder import EVALUATION
from moonfed.storage.run_record import RunRecord


@dataclass(frozen=True)
class AtParty:
    """One party: its rows, its own test rows, and the accuracy of each method on those, the mean over the seeds."""

    party: str
    rows: int
    test_rows: int
    accuracies: dict[str, float | None]
    judged: str = "test"  # or held-out, the kind of rows that test_rows counts


def by_party(outcomes: Sequence[tuple[str, RunRecord]]) -> list[AtParty]:
    """Read what finished trials said of each party by name; empty where parties have no names."""
    found: dict[str, AtParty] = {}
    values: dict[tuple[str, str], list[float]] = {}
    methods = list(dict.fromkeys(name for name, _ in outcomes))
    for method, outcome in outcomes:
        for line in _parties(outcome):
            name = str(line["party"])
            kind = outcome.config.data.judged
            found.setdefault(name, AtParty(name, line["rows"], line["test_rows"], dict.fromkeys(methods), kind))
            if line["accuracy"] is not None:
                values.setdefault((name, method), []).append(line["accuracy"])
    for (name, method), accuracies in values.items():
        found[name].accuracies[method] = statistics.fmean(accuracies)
    return list(found.values())


def _parties(outcome: RunRecord) -> list[dict]:
    if not outcome.finished:
        return []
    try:
        return read_json(outcome.folder / EVALUATION).get("parties") or []
    except UserError:
        return []
