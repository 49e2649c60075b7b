"""moonfed bench."""

import json
import time
from dataclasses import asdict
from typing import Annotated

import typer

from moonfed.cli.flags import Json
from moonfed.cli.progress import stderr
from moonfed.core.errors import RunFailed, UserError


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
    from moonfed.report.terminal import bench_table

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
        bench_table(found)
    if found.stopped:
        raise RunFailed("stopped before all was timed; what was timed until then is printed")
