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

MAX_DIGITS = 10

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
    populations: Annotated[
        str | None,
        typer.Option(
            "--populations",
            help="instead, time rounds of 50 virtual parties of these populations, for example 1000,100000",
            metavar="NUMBERS",
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Time the same work by the eager loop and by the stacked engine; both must end at the same weights."""
    if populations is not None:
        if only or lanes or neighbours is not None:
            raise UserError("--populations is a measurement of its own; omit --neighbours, --only and --lanes")
        bench_populations(populations, device, json_)
    elif neighbours is not None:
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
    if lanes and not all(0 < number <= 1000 for number in _numbers(lanes)):
        raise UserError(f"--lanes needs numbers from 1 to 1000, for example 10,30,100, got {lanes}")
    widths = _numbers(lanes) if lanes else []
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


def bench_populations(sizes: str, device: str, json_: bool) -> None:
    """Print what a round costs by the size of the population."""
    from moonfed.bench.populations import COHORT, time_populations
    from moonfed.engines import pick_device
    from moonfed.report.blocks import Table
    from moonfed.report.terminal import print_line, print_table

    numbers = _numbers(sizes)
    if len(set(numbers)) < len(numbers) or not all(COHORT <= number <= 1_000_000 for number in numbers):
        raise UserError(
            f"--populations needs different numbers from {COHORT} to 1000000, for example 1000,100000, got {sizes}"
        )
    pick_device(device)  # refuses one that is not there
    with timed_messages():
        found = time_populations(numbers, device)
    if json_:
        typer.echo(json.dumps(found.facts(), indent=2))
        return
    columns = ["parties", "start, s", "s per round", "peak GiB", "checkpoint MB per round", "resume, s"]
    rows = [
        [
            f"{timing.parties:,}",
            f"{timing.start_seconds:.1f}",
            f"{timing.round_seconds:.3f}",
            f"{timing.peak_bytes / 2**30:.2f}",
            f"{timing.checkpoint_bytes / 1e6:.2f}",
            f"{timing.resume_seconds:.1f}",
        ]
        for timing in found.timings
    ]
    note = "start and resume: until the first round, Python's own start included; peak: of the main process"
    print_table(Table("populations", f"MOON, {COHORT} parties per round", columns, rows, "rrrrrr", note=note))
    if len(numbers) > 1:
        print_line(f"a round of the largest population takes {found.round_ratio:.2f} times one of the smallest")


def _numbers(text: str) -> list[int]:
    """Read whole numbers between commas; what is none counts as 0, which every caller refuses."""
    return [int(part) if part.isdecimal() and len(part) < MAX_DIGITS else 0 for part in text.split(",")]


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
