"""moonfed reproduce."""

import json as encoding
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from moonfed.cli.help_pages import Json
from moonfed.cli.progress import messages_to, print_line, showing, working
from moonfed.core.errors import RunFailed, UserError, unknown
from moonfed.core.wording import counted
from moonfed.engines.devices import DEVICE_HELP

RESULT = "result.json"


def reproduce(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[IDS]...", help="table1, fig6, shi-table1, ...; all: every one")
    ] = None,
    list_: Annotated[
        bool, typer.Option("--list", help="list every id with its data sets and the estimated time on this machine")
    ] = False,
    dataset: Annotated[
        str | None, typer.Option("--dataset", metavar="NAME", help="only the parts that one data set is sufficient for")
    ] = None,
    scale: Annotated[
        str, typer.Option("--scale", metavar="full|smoke", help="as published, or a smoke test of about a minute")
    ] = "full",
    seeds: Annotated[
        str | None, typer.Option("--seeds", metavar="SEEDS", help="training seeds (default 0,1,2; smoke 0,1)")
    ] = None,
    splits: Annotated[
        str, typer.Option("--splits", metavar="SEEDS", help="seeds of the split; the paper's is 0")
    ] = "0",
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="folder (default runs/reproduce; smoke runs/reproduce-smoke)"),
    ] = None,
    device: Annotated[str, typer.Option("--device", metavar="VALUE", help=DEVICE_HELP)] = "auto",
    precision: Annotated[
        str, typer.Option("--precision", metavar="VALUE", help="numeric precision on GPUs: auto, fp32, tf32 or fp16")
    ] = "auto",
    figures: Annotated[
        bool, typer.Option("--figures", help="also write every figure of the page as SVG, PDF and PNG")
    ] = False,
    json: Json = False,
) -> None:
    """Reproduce published tables and figures: moonfed reproduce table1 --dataset cifar10."""
    from moonfed.papers.recipes import RECIPES
    from moonfed.papers.scale import on_smoke_data

    options = _options(out, scale, seeds, splits, {"device": device, "precision": precision})
    chosen = choose(ids or [], dataset, RECIPES, everything=list_ and not ids)
    if scale == "smoke":
        chosen = [on_smoke_data(recipe) for recipe in chosen]
    if list_:
        _list(chosen, options, json)
    else:
        _reproduce(chosen, options, dataset, precision, figures, json)


def _reproduce(
    chosen: Sequence[Any], options: Any, dataset: str | None, precision: str, figures: bool, json: bool
) -> None:
    """Run recipes, write and print their results; trials that did not end well are an error at the end."""
    from moonfed.papers.recipe_result import result_of
    from moonfed.papers.recipe_trials import has_failed, required_trials, run_recipes

    need_data(chosen, options.scale)
    names = {recipe.id: result_folder(recipe.id, options, dataset, precision) for recipe in chosen}
    for place in names.values():
        _same_scale(place, options.scale)
    with showing() as display:
        whole = run_recipes(chosen, options, [display])
    results = [result_of(recipe, options) for recipe in chosen]
    _write_results(results, options, [names[result["id"]] for result in results], figures, json)
    if not whole:
        raise RunFailed(f"stopped early, saved in {options.out}; run the same command to continue")
    failed = sum(has_failed(place) for place in required_trials(chosen, options))
    if failed:
        raise RunFailed(f"{counted(failed, 'trial')} diverged to non-finite numbers; the rows are marked as failed")


def _options(out: Path | None, scale: str, seeds: str | None, splits: str, run: dict[str, Any]) -> Any:
    """Read what is asked of every recipe."""
    from moonfed.experiments.compare import seed_list
    from moonfed.papers.recipe_trials import ReproductionOptions
    from moonfed.papers.scale import SCALES

    if scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    smoke = scale == "smoke"
    numbers = seed_list(seeds if seeds is not None else "0,1" if smoke else "0,1,2", "--seeds")
    folder = out or Path("runs") / ("reproduce-smoke" if smoke else "reproduce")
    return ReproductionOptions(folder, scale, tuple(numbers), tuple(seed_list(splits, "--splits")), run)


def _write_results(
    results: Sequence[dict[str, Any]], options: Any, places: Sequence[Path], figures: bool, json: bool
) -> None:
    """Write the results, and print them as tables or as one JSON value."""
    from moonfed.report.reproduction import footnotes, heading, tables
    from moonfed.report.terminal import print_line as print_answer
    from moonfed.report.terminal import print_table

    for result, place in zip(results, places, strict=True):
        _write(result, place)
        if not json:
            print_answer(heading(result))
            for table in tables(result):
                print_table(table)
            print_answer("\n".join(footnotes(result)))
            typer.echo(f"written to {place}\n")
    page = _write_page(results, options, places, figures)
    if json:
        typer.echo(encoding.dumps(results, indent=2, allow_nan=False))
    else:
        typer.echo(f"all on one page: {page}")


def choose(ids: Sequence[str], dataset: str | None, recipes: dict[str, Any], everything: bool) -> list[Any]:
    """Select the recipes by id; with a data set, restrict each to what that one is sufficient for."""
    if not ids and not everything:
        raise UserError("reproduce needs an id, for example table1, or all; moonfed reproduce --list shows every id")
    for id in ids:
        if id not in recipes and id != "all":
            raise unknown("recipe", id, recipes)
    chosen = list(recipes.values()) if everything or "all" in ids else [recipes[id] for id in dict.fromkeys(ids)]
    if dataset is None:
        return chosen
    known = {name for recipe in recipes.values() for name in recipe.datasets}
    if dataset not in known:
        raise unknown("data set", dataset, known, "in the recipes")
    fitting = [recipe for recipe in chosen if dataset in recipe.datasets]
    for recipe in chosen:
        if recipe not in fitting and not (everything or "all" in ids):
            raise UserError(f"{recipe.id} does not use {dataset}; it uses {', '.join(recipe.datasets)}")
    return [recipe.only(dataset) for recipe in fitting]


def result_folder(id: str, options: Any, dataset: str | None, precision: str) -> Path:
    """Folder of a recipe's results, named by the options, so that different commands write to different folders."""
    words = [id] + ([dataset] if dataset else [])
    words += [] if options.splits == (0,) else ["splits", *map(str, options.splits)]
    usual = (0, 1) if options.scale == "smoke" else (0, 1, 2)
    words += [] if options.seeds == usual else ["seeds", *map(str, options.seeds)]
    words += [] if precision == "auto" else [precision]
    return options.out / "-".join(words)


def need_data(chosen: Sequence[Any], scale: str) -> None:
    """Raise UserError if a data set that the recipes need is missing."""
    missing = [name for name in dict.fromkeys(d for r in chosen for d in r.datasets) if not _is_here(name)]
    if missing and scale == "full":
        some = [r.id for r in chosen if missing[0] in r.datasets]
        raise UserError(
            f"{some[0]} needs {missing[0]}, which is not on this machine; "
            f"get it with: moonfed data get {missing[0]}, or choose another with --dataset"
        )


def _same_scale(folder: Path, scale: str) -> None:
    """Raise UserError if the folder holds results of the other scale."""
    from moonfed.core.files import read_json

    try:
        there = read_json(folder / RESULT).get("scale", scale)
    except UserError:  # there is none, or it is damaged and will be written anew
        return
    if there != scale:
        raise UserError(f"{folder} holds results of scale {there}, now {scale}; use --out for another folder")


def _is_here(dataset: str) -> bool:
    from moonfed.data.catalog.cache import is_cached
    from moonfed.data.catalog.image_sets import IMAGE_SETS

    return dataset not in IMAGE_SETS or is_cached(IMAGE_SETS[dataset])


def _write(result: dict[str, Any], folder: Path) -> None:
    from moonfed.core.files import make_folder, write_bytes, write_json
    from moonfed.report.heatmap import draw_heatmap
    from moonfed.report.reproduction import RESULT_FILES

    make_folder(folder)
    write_json(folder / RESULT, result)
    for name, form in RESULT_FILES.items():
        write_bytes(folder / name, form(result).encode())
    for line in result["lines"]:
        for split in line["splits"] if line["measure"] == "split std" else ():
            draw_heatmap(split, folder / f"{line['column']}-split{split['seed']}.svg")


def _write_page(results: Sequence[dict[str, Any]], options: Any, places: Sequence[Path], figures: bool) -> Path:
    """Write all results as one page, and their figures as files on request."""
    from moonfed.report.blocks import plots_of
    from moonfed.report.figures import save
    from moonfed.report.reproduction_page import sections_of
    from moonfed.report.run_report import write_report

    with working():
        chapters = [sections_of(result, options.out) for result in results]
        for place, sections in zip(places, chapters, strict=True):
            for plot in plots_of(sections) if figures else ():
                save(plot.figure, place, plot.name)
    ids = [result["id"] for result in results]
    path = (places[0] if len(ids) == 1 else options.out) / "report.html"
    what = ", ".join(ids) if len(ids) < 4 else f"{len(ids)} tables and figures"
    smoke = " [SMOKE]" if options.scale == "smoke" else ""
    introduction = (
        "Published and measured values side by side. A verdict concerns the difference of two methods, paired by seed."
    )
    write_report(f"{what}, reproduced{smoke}", [s for chapter in chapters for s in chapter], path, introduction)
    return path


def _list(chosen: Sequence[Any], options: Any, json: bool) -> None:
    from moonfed.papers.cost import costs
    from moonfed.report.listings import recipes_table
    from moonfed.report.terminal import print_table

    with messages_to(print_line):
        found = [item | {"here": {d: _is_here(d) for d in item["datasets"]}} for item in costs(chosen, options)]
    if json:
        typer.echo(encoding.dumps(found, indent=2, allow_nan=False))
    else:
        print_table(recipes_table(found))
