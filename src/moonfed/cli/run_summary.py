"""The result of a run, for people and programs, and its exit code."""

import json as encoding
from pathlib import Path

import typer

from moonfed.core.errors import RunFailed
from moonfed.storage.run_record import RunRecord
from moonfed.training.records import RoundRecord


def close(outcome: RunRecord, json: bool) -> None:
    """Print the result of a run; one that failed or was stopped ends the command with exit code 1."""
    from moonfed.report.by_party import accuracy_by_party, party_table
    from moonfed.report.terminal import print_table
    from moonfed.training.accuracy import accuracy, final_accuracy
    from moonfed.training.metrics import METRIC_NAMES, metrics_text

    shown = (*METRIC_NAMES, "positive", "temperature", "uncalibrated")

    last, final = outcome.rows[-1] if outcome.rows else None, outcome.evaluation
    by_party = final.get("by_party", {})
    if json:
        answer = {"folder": str(outcome.folder), "rounds": len(outcome.rows), "accuracy": accuracy(outcome.rows)}
        answer |= {"final_accuracy": final_accuracy(outcome.rows), "last": last, "failure": outcome.failure}
        answer |= {"metrics": {k: final[k] for k in shown if k in final}, "by_party": by_party}
        typer.echo(encoding.dumps(answer, indent=2, allow_nan=False))
    if outcome.failure is not None:
        raise RunFailed(with_advice(outcome.failure, outcome.folder, len(outcome.rows)))
    if not outcome.finished:
        raise RunFailed(f"stopped after round {len(outcome.rows)}, saved in {outcome.folder}; continue with --resume")
    if last is not None and not json:
        natural = outcome.config.data.partition == "natural"
        if natural and (parties := party_table(accuracy_by_party([("", outcome)]), by_party)) is not None:
            print_table(parties)
        if figures := metrics_text(final):
            positive = f" (positive: {final['positive']})" if "positive" in final else ""
            if "temperature" in final:
                before = metrics_text(final["uncalibrated"])
                typer.echo(f"calibrated with temperature {final['temperature']:.2f}; before: {before}")
            typer.echo(f"final model: {figures}{positive}")
        where = outcome.config.data.judged_on if outcome.config.data.validation else "the test set"
        typer.echo(f"{accuracy(outcome.rows):.1%} on {where} {_rounds_text(outcome.rows)}; {outcome.folder}")


def _rounds_text(rows: list[RoundRecord]) -> str:
    """Say which rounds are behind the accuracy of a run."""
    from moonfed.training.accuracy import accuracy_window, final_accuracy
    from moonfed.training.early_stopping import best_round

    if (best := best_round(rows)) is not None:
        return f"with the model of round {best} of {len(rows)}, the best on rows set aside"
    window = accuracy_window(rows)
    several = window.startswith("mean")
    more = f" ({window.removesuffix(' rounds')}; final accuracy {final_accuracy(rows):.1%})" if several else ""
    return f"after round {len(rows)}{more}"


def with_advice(failure: str, folder: Path, rounds: int) -> str:
    """Say what to do about a run that failed."""
    saved = f". The last good state, of round {rounds}, is in {folder}" if rounds else ""
    return f"{failure}; try a smaller --lr{saved}"
