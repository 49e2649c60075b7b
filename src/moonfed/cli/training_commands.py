"""moonfed run, compare, sweep and partition."""

import json as encoding
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moonfed.cli.flags import Out, Resume, Several, Values, with_settings
from moonfed.cli.help_pages import Json
from moonfed.cli.progress import messages_to, print_line, showing
from moonfed.cli.run_summary import close, first_failure
from moonfed.core.errors import RunFailed, UserError
from moonfed.training.config import make_config
from moonfed.training.registry import SHARED

if TYPE_CHECKING:
    from moonfed.experiments.compare import PlannedTrial


@with_settings(("algorithm", "data", "model", "train", "cohort", "run"))
def run(given: Values, out: Out = None, resume: Resume = False, json: Json = False) -> None:
    """Train one algorithm: moonfed run --algorithm moon --mu 5 --parties 10 --beta 0.5 --rounds 20 --seed 0."""
    from moonfed.experiments.execute import execute
    from moonfed.training.setup import set_up

    settings = make_config(given)
    with showing(resume=resume, folder=out) as display:
        ((_, record),) = execute(*set_up([settings]), [out], resume, [display])
    close(record, json)


@with_settings(("data", "model", "train", "cohort", "run"), tables=("compare",), shared=SHARED)
def compare(
    given: Values,
    several: Several,
    methods: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[METHODS]...",
            help="moon, fedavg, moon:mu=5, moon+fedavgm:server_momentum=0.9, ...; default: those of the table "
            "[compare] in the --config file",
        ),
    ] = None,
    every: Annotated[
        bool,
        typer.Option("--all", help="every method that fits data and network; one seed and few rounds unless given"),
    ] = False,
) -> None:
    """Train several methods over several seeds and print one table: moonfed compare moon fedavg --seeds 0,1,2."""
    from moonfed.experiments.compare import compare_options, plan_comparison
    from moonfed.experiments.every_method import every_method, shorten

    seeds = several.seeds
    table, left_out = given.pop("compare", {}), dict[str, str]()
    if every:
        if methods or "methods" in table:
            also = " ".join(methods) if methods else "methods in the table [compare]"
            raise UserError(f"--all is every method, got {also} as well; use one or the other")
        given, flags = shorten(given)
        methods, left_out = every_method(given)
        if seeds is None and "seeds" not in table:
            seeds, flags = "0", f"{flags} --seeds 0".strip()
        if flags:
            typer.echo(f"--all sets {flags}; give other values to change that", err=True)
    chosen = compare_options(methods or [], seeds, table, several.holdout_seeds)
    folder, plan = plan_comparison(chosen.methods, chosen.seeds, given, several.out, chosen.holdout_seeds)
    for name, why in left_out.items():
        typer.echo(f"--all leaves {name} out: {why}", err=True)
    _run_together(folder, plan, several, "method", chosen.baseline, ranked=every)


@with_settings(("algorithm", "data", "model", "train", "cohort", "run"))
def sweep(
    given: Values,
    several: Several,
) -> None:
    """Train one algorithm with every value of a grid, in shared stacks: moonfed sweep --mu 0.1,1,5,10 --seeds 0,1,2."""
    from moonfed.experiments.sweep import plan_sweep

    folder, plan = plan_sweep(several.seeds, given, several.out, several.holdout_seeds)
    _run_together(folder, plan, several, "setting")


def _run_together(
    folder: Path,
    plan: "list[PlannedTrial]",
    several: Several,
    kind: str,
    baseline: str | None = None,
    ranked: bool = False,
) -> None:
    """Run the trials of a plan and print one table of them, in the order of the plan or by accuracy."""
    from moonfed.experiments.holdouts import execute_plan, has_saved_round
    from moonfed.report.by_party import accuracy_by_party, party_table
    from moonfed.report.consensus import consensus_table
    from moonfed.report.final_metrics import metrics_table
    from moonfed.report.grouping import by_accuracy, comparison
    from moonfed.report.sections import accuracy_table
    from moonfed.report.terminal import print_table

    with showing(resume=several.resume and not has_saved_round(plan), folder=folder) as display:
        named = execute_plan(plan, several.resume, [display])
    named, outcomes = by_accuracy(named) if ranked else named, [record for _, record in named]
    settings = comparison(named, baseline)
    if several.json:
        _print_json([method for setting in settings for method in setting.as_json()["methods"]])
    else:
        tables = [accuracy_table(setting, folder.name, setting.title, kind) for setting in settings]
        tables += [consensus_table(setting, folder.name) for setting in settings]
        tables += [metrics_table(setting, kind, with_traffic=True) for setting in settings]
        tables.append(party_table(accuracy_by_party(named)))
        for table in tables:
            if table is not None:
                print_table(table)
        holdout = "holdout-N/" if len(plan[0].folder.relative_to(folder).parts) > 2 else ""
        typer.echo(f"runs: {folder}/{kind.upper()}/{holdout}seed-N")
    if (failure := first_failure(named)) is not None:
        raise RunFailed(failure)
    if len(outcomes) < len(plan) or not all(outcome.finished for outcome in outcomes):
        raise RunFailed(f"stopped early, saved in {folder}; continue with --resume")


@with_settings(("data",))
def partition(
    given: Values,
    seed: Annotated[str | None, typer.Option("--seed", help="seed of the split (default 0)", metavar="VALUE")] = None,
    json: Json = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="draw the heat map of classes and parties: .png, .svg, .pdf")
    ] = None,
) -> None:
    """Split the rows between parties and show who holds what."""
    from moonfed.report.heatmap import draw_heatmap
    from moonfed.report.listings import partition_table
    from moonfed.report.terminal import print_table
    from moonfed.training.split_summary import describe_split

    if seed is not None:
        given.setdefault("run", {})["seed"] = seed
    settings = make_config(given)
    with messages_to(print_line):
        split = describe_split(settings)
    if plot is not None:
        draw_heatmap(split, plot)
    if json:
        _print_json(split)
    else:
        print_table(partition_table(split))
        if plot is not None:
            typer.echo(f"drawn to {plot}")


def _print_json(value: Any) -> None:
    typer.echo(encoding.dumps(value, indent=2, allow_nan=False))
