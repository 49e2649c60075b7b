"""moonfed task."""

import json as encoding
from pathlib import Path
from typing import Annotated, Any

import typer

from moonfed.cli.flags import GoesOn, Json
from moonfed.cli.progress import showing
from moonfed.core.errors import RunFailed, UserError, unknown

RESULT, PAGE = "result.json", "result.md"


def task(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="table, text or sound; default: list them")
    ] = None,
    seeds: Annotated[str, typer.Option("--seeds", metavar="SEEDS", help="seeds of the trials, 0,1,2 or 0-4")] = "0-4",
    rounds: Annotated[int | None, typer.Option("--rounds", metavar="ROUNDS", help="fewer or more rounds")] = None,
    device: Annotated[str, typer.Option("--device", metavar="VALUE", help="auto, cpu, cuda or cuda:N")] = "auto",
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="folder (default runs/task-NAME)")] = None,
    resume: GoesOn = False,
    json: Json = False,
) -> None:
    """Compare MOON, FedAvg and FedProx on a table, a text or a sound with parties of its own: moonfed task text."""
    from moonfed.core.files import make_folder, write_bytes, write_json
    from moonfed.experiments.compare import plan_comparison
    from moonfed.experiments.execute import run_trials
    from moonfed.experiments.tasks import METHODS, TASKS, result_of
    from moonfed.report.by_party import by_party
    from moonfed.report.task_page import markdown

    if name is None:
        _list(json)
        return
    if name not in TASKS:
        raise unknown("task", name, TASKS)
    asked = TASKS[name]
    train = asked.settings["train"] | ({} if rounds is None else {"rounds": rounds})
    values = asked.settings | {"train": train, "run": {"device": device}}
    folder, plan = plan_comparison(list(METHODS), seeds, values, out or Path("runs") / f"task-{name}")
    with showing() as display:
        trials = [(settings, path) for _, settings, path in plan]
        outcomes = run_trials(trials, True, [display])
    if not all(outcome.finished or outcome.failure for outcome in outcomes):
        raise RunFailed(f"stopped early, saved in {folder}; the same command goes on")
    named = [(method, outcome) for (method, _, _), outcome in zip(plan, outcomes, strict=True)]
    found = result_of(asked, named)
    page = markdown(found, by_party(named), _machine(outcomes[0].folder))
    make_folder(folder)
    write_json(folder / RESULT, found)
    write_bytes(folder / PAGE, page.encode())
    typer.echo(encoding.dumps(found, indent=2, allow_nan=False) if json else f"{page}written to {folder / PAGE}")


def _machine(folder: Path) -> str:
    """Say on what a run was carried out."""
    from moonfed.core.files import read_json
    from moonfed.storage.run_folder import CONFIG

    try:
        there = read_json(folder / CONFIG)
        machine, versions = there["machine"], there["versions"]
        device = machine["gpu"] or f"a CPU ({machine['cpu']}, {machine['threads']} threads)"
        return f"Run on {device}, torch {versions['torch']}, moonfed {versions['moonfed']}"
    except (UserError, KeyError, TypeError):
        return "Run on a machine that is not on record"


def _list(json: bool) -> None:
    from moonfed.experiments.tasks import TASKS

    found: list[dict[str, Any]] = [task._asdict() for task in TASKS.values()]
    if json:
        typer.echo(encoding.dumps(found, indent=2))
    for item in found if not json else ():
        typer.echo(f"{item['kind']:6} {item['dataset']:14} {item['parties']:12} {item['question']}")
