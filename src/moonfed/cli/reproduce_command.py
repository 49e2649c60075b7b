"""moonfed reproduce."""

import json as encoding
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from moonfed.cli.flags import Json
from moonfed.cli.progress import showing, stderr, working
from moonfed.core.errors import RunFailed, UserError, unknown

RESULT = "result.json"


def reproduce(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[IDS]...", help="table1, fig6, shi-table1, ...; all: every one")
    ] = None,
    list_: Annotated[
        bool, typer.Option("--list", help="list what there is: what it needs, and about how long it takes here")
    ] = False,
    dataset: Annotated[
        str | None, typer.Option("--dataset", metavar="NAME", help="only what one data set is enough for")
    ] = None,
    scale: Annotated[
        str, typer.Option("--scale", metavar="full|smoke", help="as published, or in a minute to see that it works")
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
    device: Annotated[str, typer.Option("--device", metavar="VALUE", help="auto, cpu, cuda or cuda:N")] = "auto",
    precision: Annotated[
        str, typer.Option("--precision", metavar="VALUE", help="numeric precision on GPUs: auto, fp32, tf32 or fp16")
    ] = "auto",
    resume: Annotated[
        bool, typer.Option("--resume", help="go on where a stopped command was; it always does, this says it aloud")
    ] = False,
    figures: Annotated[
        bool, typer.Option("--figures", help="also write every figure of the page as SVG, PDF and PNG")
    ] = False,
    json: Json = False,
) -> None:
    """Make published tables and figures again, beside what was printed: moonfed reproduce table1 --dataset cifar10."""
    from moonfed.experiments.compare import seed_list
    from moonfed.experiments.execute import run_trials
    from moonfed.papers.recipe_result import result_of
    from moonfed.papers.recipe_trials import Terms, has_failed, run_recipes, wanted
    from moonfed.papers.recipes import RECIPES
    from moonfed.papers.scale import SCALES

    if scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    smoke = scale == "smoke"
    numbers = seed_list(seeds if seeds is not None else "0,1" if smoke else "0,1,2", "--seeds")
    folder = out or Path("runs") / ("reproduce-smoke" if smoke else "reproduce")
    terms = Terms(
        folder, scale, tuple(numbers), tuple(seed_list(splits, "--splits")), {"device": device, "precision": precision}
    )
    chosen = choose(ids or [], dataset, RECIPES, everything=list_ and not ids)
    if list_:
        _list(chosen, terms, json)
        return
    need_data(chosen, scale)
    names = {recipe.id: result_folder(recipe.id, terms, dataset, precision) for recipe in chosen}
    for place in names.values():
        _same_scale(place, scale)
    with showing() as display:

        def run(configs: Any) -> Any:
            return run_trials(configs, True, [display])

        whole = run_recipes(chosen, terms, run)
    results = [result_of(recipe, terms) for recipe in chosen]
    _tell(results, terms, [names[result["id"]] for result in results], figures, json)
    if not whole:
        raise RunFailed(f"stopped early, saved in {folder}; the same command goes on")
    failed = sum(has_failed(place) for place in wanted(chosen, terms))
    if failed:
        raise RunFailed(f"{failed} trials ended in numbers that are not finite; their lines say so")


def _tell(results: Sequence[dict[str, Any]], terms: Any, places: Sequence[Path], figures: bool, json: bool) -> None:
    """Write what was made again, and print it for people or as one JSON value."""
    from moonfed.report.reproduction import print_result

    for result, place in zip(results, places, strict=True):
        _write(result, place)
        if not json:
            print_result(result)
            typer.echo(f"written to {place}\n")
    page = _write_page(results, terms, places, figures)
    if json:
        typer.echo(encoding.dumps(results, indent=2, allow_nan=False))
    else:
        typer.echo(f"all of it on one page: {page}")


def choose(ids: Sequence[str], dataset: str | None, recipes: dict[str, Any], everything: bool) -> list[Any]:
    """Find the recipes that are asked for, and of each what one data set is enough for."""
    if not ids and not everything:
        raise UserError("reproduce needs an id, table1 for one, or all; moonfed reproduce --list shows what there is")
    for id in ids:
        if id not in recipes and id != "all":
            raise unknown("recipe", id, recipes)
    chosen = list(recipes.values()) if everything or "all" in ids else [recipes[id] for id in dict.fromkeys(ids)]
    if dataset is None:
        return chosen
    known = {name for recipe in recipes.values() for name in recipe.datasets}
    if dataset not in known:
        raise unknown("data set in the recipes", dataset, known)
    fitting = [recipe for recipe in chosen if dataset in recipe.datasets]
    for recipe in chosen:
        if recipe not in fitting and not (everything or "all" in ids):
            raise UserError(f"{recipe.id} is not about {dataset}; it needs {', '.join(recipe.datasets)}")
    return [recipe.only(dataset) for recipe in fitting]


def result_folder(id: str, terms: Any, dataset: str | None, precision: str) -> Path:
    """Name the folder of a recipe's results by all that was asked for, so that no two commands write to one."""
    words = [id] + ([dataset] if dataset else [])
    words += [] if terms.splits == (0,) else ["splits", *map(str, terms.splits)]
    usual = (0, 1) if terms.scale == "smoke" else (0, 1, 2)
    words += [] if terms.seeds == usual else ["seeds", *map(str, terms.seeds)]
    words += [] if precision == "auto" else [precision]
    return terms.out / "-".join(words)


def need_data(chosen: Sequence[Any], scale: str) -> None:
    """Refuse to begin without the data sets that the recipes need."""
    missing = [name for name in dict.fromkeys(d for r in chosen for d in r.datasets) if not _is_here(name)]
    if missing and scale == "full":
        some = [r.id for r in chosen if missing[0] in r.datasets]
        raise UserError(
            f"{some[0]} needs {missing[0]}, which is not on this machine yet; "
            f"get it with: moonfed data get {missing[0]}, or ask for another with --dataset"
        )


def _same_scale(folder: Path, scale: str) -> None:
    """Refuse to put a smoke test's results where others are, or the other way round."""
    from moonfed.core.files import read_json

    try:
        there = read_json(folder / RESULT).get("scale", scale)
    except UserError:  # there is none, or it is damaged and will be written anew
        return
    if there != scale:
        raise UserError(f"{folder} holds results of scale {there}, now {scale}; use --out for another folder")


def _is_here(dataset: str) -> bool:
    from moonfed.data.catalog.cache import is_here
    from moonfed.data.catalog.image_sets import CATALOGUE

    return dataset not in CATALOGUE or is_here(CATALOGUE[dataset])


def _write(result: dict[str, Any], folder: Path) -> None:
    from moonfed.core.files import make_folder, write_bytes, write_json
    from moonfed.report.heatmap import draw_heatmap
    from moonfed.report.reproduction import FORMS

    make_folder(folder)
    write_json(folder / RESULT, result)
    for name, form in FORMS.items():
        write_bytes(folder / name, form(result).encode())
    for line in result["lines"]:
        for split in line["splits"] if line["measure"] == "split std" else ():
            draw_heatmap(split, folder / f"{line['column']}-split{split['seed']}.svg")


def _write_page(results: Sequence[dict[str, Any]], terms: Any, places: Sequence[Path], figures: bool) -> Path:
    """Write what a command made again as one page, and its figures as files if they are wanted."""
    from moonfed.report.blocks import pictures_of
    from moonfed.report.figures import save
    from moonfed.report.reproduction_page import sections_of
    from moonfed.report.run_report import write_report

    with working():
        say = lambda line: None  # noqa: E731
        chapters = [sections_of(result, terms.out, say) for result in results]
        for place, sections in zip(places, chapters, strict=True):
            for picture in pictures_of(sections) if figures else ():
                save(picture.figure, place, picture.name)
    ids = [result["id"] for result in results]
    path = (places[0] if len(ids) == 1 else terms.out) / "report.html"
    what = ", ".join(ids) if len(ids) < 4 else f"{len(ids)} tables and figures"
    smoke = " [SMOKE]" if terms.scale == "smoke" else ""
    lead = "Published and measured side by side. A verdict is about the difference of two methods, paired by seed."
    write_report(f"{what}, made again{smoke}", [s for chapter in chapters for s in chapter], path, lead)
    return path


def _list(chosen: Sequence[Any], terms: Any, json: bool) -> None:
    from moonfed.papers.cost import costs
    from moonfed.report.reproduction import print_list

    console = stderr()
    found = [
        item | {"here": {d: _is_here(d) for d in item["datasets"]}} for item in costs(chosen, terms, console.print)
    ]
    if json:
        typer.echo(encoding.dumps(found, indent=2, allow_nan=False))
    else:
        print_list(found)
