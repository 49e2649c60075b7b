"""moonfed bench."""

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from moonfed.cli.flags import Json
from moonfed.cli.progress import stderr
from moonfed.core.errors import RunFailed, UserError

if TYPE_CHECKING:
    from moonfed.bench.timing import Measured
    from moonfed.report.blocks import Table


def bench(
    device: Annotated[str, typer.Option("--device", help="auto, cpu or cuda", metavar="VALUE")] = "auto",
    only: Annotated[
        str | None, typer.Option("--only", help="ways to take, compiled-bf16,compiled-tf32 for one", metavar="WAYS")
    ] = None,
    lanes: Annotated[
        str | None,
        typer.Option("--lanes", help="also time as many equal parties as this, 10,30,100", metavar="NUMBERS"),
    ] = None,
    json_: Json = False,
) -> None:
    """Time the same work by the plain eager loop and by our engine; both must end at the same weights."""
    import torch

    from moonfed.bench.speed import measure
    from moonfed.bench.timing import PROFILES
    from moonfed.engines import pick_device
    from moonfed.report.terminal import print_line, print_table

    if device not in ("auto", "cpu", "cuda"):
        raise UserError(f"--device needs auto, cpu or cuda, got {device}")
    chosen = pick_device(device)
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda needs a GPU that torch can use, and there is none; use --device cpu")
    known = [f"{way}-{precision}" for way, precision, _ in PROFILES[chosen.type].modes]
    ways = only.split(",") if only else []
    for way in ways:
        if way not in known:
            raise UserError(f"--only knows {', '.join(known)} on this device, got {way}")
    if lanes and not all(part.isdecimal() and 0 < int(part) <= 1000 for part in lanes.split(",")):
        raise UserError(f"--lanes needs numbers from 1 to 1000, 10,30,100 for one, got {lanes}")
    console = stderr()
    widths = [int(part) for part in lanes.split(",")] if lanes else []
    began = time.perf_counter()

    def say(line: str) -> None:
        console.print(f"{time.perf_counter() - began:5.0f} s  {line}", markup=False)

    found = measure(chosen, say, ways, widths)
    if json_:
        timings = [asdict(timing) for timing in found.timings]
        typer.echo(
            json.dumps(
                {"machine": found.machine, "stopped": found.stopped, "timings": timings} | found.ratios(), indent=2
            )
        )
    else:
        print_table(bench_table(found))
        for name, value in found.ratios().items():
            print_line(f"{name} {value:.2f}")
    if found.stopped:
        raise RunFailed("stopped before all was timed; what was timed until then is printed")


def bench_table(measured: "Measured") -> "Table":
    """Table of the timings."""
    from moonfed.report.blocks import Table

    machine = measured.machine
    caption = f"{machine['device']}, {machine['threads']} threads, torch {machine['torch']}"
    columns = ["way", "precision", "algorithm", "augmented", "trials", "lanes"]
    columns += ["us per party-step", "times eager, in turn", "s per round and trial"]
    rows: list[list[str]] = []
    for timing in measured.timings:
        cells = [timing.way, timing.precision, timing.algorithm, "yes" if timing.augmented else "no"]
        cells += [str(timing.trials), str(timing.lanes or ""), f"{timing.us_per_party_step:.0f}"]
        optional = (timing.times_as_fast_as_eager, timing.seconds_per_round_and_trial)
        rows.append([*cells, *("" if value is None else f"{value:.2f}" for value in optional)])
    return Table("bench", caption, columns, rows, "llllrrrrr")
