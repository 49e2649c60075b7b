"""moonfed bench."""

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from moonfed.cli.help_pages import Json
from moonfed.cli.progress import messages_to, stderr
from moonfed.core.errors import RunFailed, UserError
from moonfed.core.wording import counted
from moonfed.engines.devices import DEVICE_KINDS

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from moonfed.bench.timing import BenchResult
    from moonfed.report.blocks import Table


def bench(
    device: Annotated[str, typer.Option("--device", help=", ".join(DEVICE_KINDS), metavar="VALUE")] = "auto",
    only: Annotated[
        str | None,
        typer.Option("--only", help="modes to time, for example compiled-fp16,compiled-tf32", metavar="MODES"),
    ] = None,
    lanes: Annotated[
        str | None,
        typer.Option("--lanes", help="also time this many equal parties, for example 10,30,100", metavar="NUMBERS"),
    ] = None,
    neighbours: Annotated[
        int | None,
        typer.Option(
            "--neighbours",
            help="instead, time a comparison on the CPU alone and beside this many busy processes",
            metavar="NUMBER",
            min=1,
            max=64,
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Time the same work by the eager loop and by the stacked engine; both must end at the same weights."""
    if neighbours is not None:
        if only or lanes or device != "auto":
            raise UserError("--neighbours is a measurement of its own; omit --device, --only and --lanes")
        bench_neighbours(neighbours, json_)
    else:
        bench_engines(device, only, lanes, json_)


def bench_engines(device: str, only: str | None, lanes: str | None, json_: bool) -> None:
    """Print how the stacked engine compares with the eager loop."""
    from moonfed.bench.speed import measure
    from moonfed.bench.timing import profile_for
    from moonfed.engines import pick_device
    from moonfed.report.terminal import print_line, print_table

    if device not in DEVICE_KINDS:
        raise UserError(f"--device needs one of {', '.join(DEVICE_KINDS)}, got {device}")
    chosen = pick_device(device)
    known = [mode.name for mode in profile_for(chosen).modes]
    modes = only.split(",") if only else []
    for mode in modes:
        if mode not in known:
            raise UserError(f"--only knows {', '.join(known)} on this device, got {mode}")
    if lanes and not all(part.isdecimal() and 0 < int(part) <= 1000 for part in lanes.split(",")):
        raise UserError(f"--lanes needs numbers from 1 to 1000, for example 10,30,100, got {lanes}")
    widths = [int(part) for part in lanes.split(",")] if lanes else []
    with timed_messages():
        result = measure(chosen, modes, widths)
    if json_:
        timings = [asdict(timing) for timing in result.timings]
        typer.echo(
            json.dumps(
                {"machine": result.machine, "stopped": result.stopped, "timings": timings} | result.ratios(), indent=2
            )
        )
    else:
        print_table(bench_table(result))
        for name, value in result.ratios().items():
            print_line(f"{name} {value:.2f}")
    if result.stopped:
        raise RunFailed("stopped before all modes were timed; the timings until then are printed")


def bench_neighbours(neighbours: int, json_: bool) -> None:
    """Print how much longer a comparison takes beside busy processes."""
    from moonfed.bench.neighbours import time_beside_neighbours
    from moonfed.report.terminal import print_line

    with timed_messages():
        timing = time_beside_neighbours(neighbours)
    if json_:
        typer.echo(json.dumps(timing.facts(), indent=2))
        return
    for name, seconds in (
        ("alone", timing.alone),
        (f"beside {counted(neighbours, 'busy process', 'busy processes')}", timing.beside),
    ):
        print_line(f"{name}: {', '.join(f'{s:.1f}' for s in seconds)} s")
    print_line(f"times slower (medians) {timing.times_slower:.2f}; the weights of all runs are equal to the bit")


def timed_messages() -> "AbstractContextManager[None]":
    """Show messages on stderr, each with the seconds since now."""
    console, began = stderr(), time.perf_counter()

    def show(line: str) -> None:
        console.print(f"{time.perf_counter() - began:5.0f} s  {line}", markup=False)

    return messages_to(show)


def bench_table(measured: "BenchResult") -> "Table":
    """Table of the timings."""
    from moonfed.report.blocks import Table

    machine = measured.machine
    caption = f"{machine['device']}, {counted(machine['threads'], 'thread')}, torch {machine['torch']}"
    columns = ["way", "precision", "algorithm", "augmented", "trials", "lanes"]
    columns += ["us per party-step", "times eager, in turn", "s per round and trial"]
    rows: list[list[str]] = []
    for timing in measured.timings:
        cells = [timing.way, timing.precision, timing.algorithm, "yes" if timing.augmented else "no"]
        cells += [str(timing.trials), str(timing.lanes or ""), f"{timing.us_per_party_step:.0f}"]
        optional = (timing.times_as_fast_as_eager, timing.seconds_per_round_and_trial)
        rows.append([*cells, *("" if value is None else f"{value:.2f}" for value in optional)])
    return Table("bench", caption, columns, rows, "llllrrrrr")
