"""The result of a run, for people and programs, and its exit code."""

import json as encoding
from collections.abc import Sequence

import typer

from moonfed.core.errors import RunFailed
from moonfed.storage.run_record import RunRecord
from moonfed.training.records import RoundRecord

SMALL_DECAY = 0.9  # of the learning rate per round, below which its fall may be what went wrong


def close(outcome: RunRecord, json: bool) -> None:
    """Print the result of a run; one that failed or was stopped ends the command with exit code 1."""
    from moonfed.report.by_party import accuracy_by_party, party_table
    from moonfed.report.consensus import consensus_text
    from moonfed.report.terminal import print_table
    from moonfed.training.accuracy import accuracy, final_accuracy
    from moonfed.training.evaluation_rows import judged_on, judged_on_own_rows
    from moonfed.training.metrics import METRIC_NAMES, metrics_text
    from moonfed.training.registry import preset_of

    shown = (*METRIC_NAMES, "positive", "temperature", "uncalibrated")

    last, final = outcome.rows[-1] if outcome.rows else None, outcome.evaluation
    by_party = final.get("by_party", {})
    if json:
        answer = {"folder": str(outcome.folder), "rounds": len(outcome.rows), "accuracy": accuracy(outcome.rows)}
        answer |= {"final_accuracy": final_accuracy(outcome.rows), "last": last, "failure": outcome.failure}
        answer |= {"metrics": {k: final[k] for k in shown if k in final}, "by_party": by_party}
        typer.echo(encoding.dumps(answer, indent=2, allow_nan=False))
    if outcome.failure is not None:
        raise RunFailed(with_advice(outcome))
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
            several = f"final models, on all {outcome.config.data.judged} rows"
            which = several if judged_on_own_rows(outcome.config) else "final model"
            typer.echo(f"{which}: {figures}{positive}")
        if graph := consensus_text(outcome):
            typer.echo(graph)
        if "global_accuracy" in final:
            chosen = outcome.config.algorithm
            whose = "consensus" if preset_of(chosen.name, chosen.server).sends_own_models else "global"
            typer.echo(f"{whose} model: {final['global_accuracy']:.1%} on {outcome.config.data.judged_on}")
        usual = not (outcome.config.data.validation or judged_on_own_rows(outcome.config))
        where = "the test set" if usual else judged_on(outcome.config)
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


def with_advice(outcome: RunRecord) -> str:
    """Say what to do about a run that failed: a smaller learning rate, and what was set beside it."""
    from moonfed.training.registry import changed_flags

    rounds, config = len(outcome.rows), outcome.config
    changed = changed_flags(config.algorithm.name, config.algorithm.server, config.algorithm.options)
    more = f", or another {' or '.join(changed)}" if changed else ""
    if config.train.lr_decay < SMALL_DECAY:
        more += ", or a --lr-decay closer to 1"
    saved = f". The last good state, of round {rounds}, is in {outcome.folder}" if rounds else ""
    return f"{outcome.failure}; try a smaller --lr{more}{saved}"


def first_failure(named: Sequence[tuple[str, RunRecord]]) -> str | None:
    """Say which of several trials failed first, why, and how many did; None if none did."""
    failed = [(name, record) for name, record in named if record.failure is not None]
    if not failed:
        return None
    name, record = failed[0]
    several = f" ({len(failed)} of {len(named)} trials failed)" if len(failed) > 1 else ""
    return f"{name}, {record.seeds.text}: {with_advice(record)}{several}"
