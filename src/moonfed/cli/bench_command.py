"""moonfed bench."""

import json
import time
from dataclasses import asdict
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

import typer

from moonfed.cli.help_pages import Json
from moonfed.cli.progress import messages_to, stderr
from moonfed.core.errors import RunFailed, UserError, unknown
from moonfed.core.wording import counted
from moonfed.engines.devices import DEVICE_KINDS

MAX_DIGITS = 10
ROUNDED_FROM = 1000.0  # numbers from here on are shown without decimals
WORKLOADS = {
    "cross-device": ("moonfed.bench.cross_device", "time_cross_device"),
    "first-round": ("moonfed.bench.first_round", "time_first_round"),
    "resnet50": ("moonfed.bench.resnet50", "time_resnet50"),
}

WORKLOAD_HELP = "instead, time cross-device (many small parties), first-round (from the start) or resnet50"

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from moonfed.bench.timing import BenchResult, WorkloadTimings
    from moonfed.engines.devices import Device
    from moonfed.report.blocks import Table


def bench(
    device: Annotated[str, typer.Option("--device", help=", ".join(DEVICE_KINDS), metavar="VALUE")] = "auto",
    workload: Annotated[
        str | None,
        typer.Option("--workload", help=WORKLOAD_HELP, metavar="NAME"),
    ] = None,
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
    engines_only: dict[str, object] = {"--only": only, "--lanes": lanes}
    if workload is not None:
        _check_alone("--workload", engines_only | {"--neighbours": neighbours, "--populations": populations})
        bench_workload(workload, device, json_)
    elif populations is not None:
        _check_alone("--populations", engines_only | {"--neighbours": neighbours})
        bench_populations(populations, device, json_)
    elif neighbours is not None:
        _check_alone("--neighbours", engines_only | {"--device": None if device == "auto" else device})
        bench_neighbours(neighbours, json_)
    else:
        bench_engines(device, only, lanes, json_)


def _check_alone(option: str, others: "Mapping[str, object]") -> None:
    """Refuse options that do not go with a measurement of its own."""
    if given := [name for name, value in others.items() if value is not None]:
        raise UserError(f"{option} is a measurement of its own; omit {', '.join(given)}")


def bench_workload(name: str, device: str, json_: bool) -> None:
    """Print the timings of a workload of its own."""
    from moonfed.engines import pick_device
    from moonfed.report.blocks import Table
    from moonfed.report.terminal import print_table

    if name not in WORKLOADS:
        raise unknown("workload", name, WORKLOADS)
    module, function = WORKLOADS[name]
    measure: Callable[[Device], WorkloadTimings] = getattr(import_module(module), function)
    chosen = pick_device(device)
    with timed_messages():
        found = measure(chosen)
    if json_:
        typer.echo(json.dumps(found.facts(), indent=2))
        return
    rows = [[_cell(value) for value in row] for row in found.rows]
    sides = "".join("l" if isinstance(value, str) else "r" for value in found.rows[0])
    note = f"{found.machine['device']}, {counted(found.machine['threads'], 'thread')}, torch {found.machine['torch']}"
    print_table(Table("bench", found.caption, list(found.columns), rows, sides, note=note))


def _cell(value: str | float | None) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= ROUNDED_FROM else f"{value:.4g}"
    return str(value or "")


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
