"""What a worked task showed, as Markdown."""

from collections.abc import Sequence
from typing import Any

from moonfed.report.by_party import AtParty


def markdown(found: dict[str, Any], parties: Sequence[AtParty], machine: str) -> str:
    """Write the methods with their intervals, the accuracy at each party, and on what it was run."""
    lines = [
        f"## A {found['task']}: {found['dataset']}",
        "",
        f"{found['question'][0].upper()}{found['question'][1:]} Parties: {found['parties']}.",
        "",
        "| method | accuracy, 95 % interval | by seed | against FedAvg, paired | |",
        "|---|---|---|---|---|",
        *(_row(item) for item in found["methods"]),
        "",
    ]
    if parties:
        methods = list(parties[0].accuracies)
        lines += [
            f"| party | rows | test rows | {' | '.join(methods)} |",
            "|---" * (3 + len(methods)) + "|",
            *(_party(at) for at in parties),
            "",
        ]
    lines += [
        f"{found['read'].capitalize()}; by party, of the final models on the party's own test rows. {machine}; all "
        f"trials in one stack, {found['seconds']:.0f} s of rounds.",
        "",
    ]
    return "\n".join(lines)


def _row(item: dict[str, Any]) -> str:
    over, gap = item["accuracy"], item["against_fedavg"]
    if over is None:
        return f"| {item['method']} | failed | | | |"
    by_seed = " ".join(f"{100 * value:.1f}" for value in item["by_seed"].values())
    cells = [item["method"], _accuracy(over), by_seed]
    cells += ["", ""] if gap is None else [_gap(gap), gap["verdict"]]
    return f"| {' | '.join(cells)} |"


def _accuracy(over: dict[str, Any]) -> str:
    ends = "" if over["low"] is None else f" ({100 * over['low']:.1f} to {100 * over['high']:.1f})"
    return f"{100 * over['mean']:.1f} %{ends}"


def _gap(over: dict[str, Any]) -> str:
    ends = "" if over["low"] is None else f" ({100 * over['low']:+.2f} to {100 * over['high']:+.2f})"
    return f"{100 * over['mean']:+.2f} points{ends}"


def _party(at: AtParty) -> str:
    cells = ["" if value is None else f"{100 * value:.1f}" for value in at.accuracies.values()]
    return f"| {at.party} | {at.rows:,} | {at.test_rows:,} | {' | '.join(cells)} |"
