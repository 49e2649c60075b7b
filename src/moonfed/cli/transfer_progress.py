"""Progress of getting a data set: a live line on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from moonfed.cli.progress import stderr
from moonfed.core.errors import RunFailed
from moonfed.data.catalog.monitor import TransferMonitor

LINE_EVERY = 5.0  # seconds, where there is no terminal


class Lines(TransferMonitor):
    """Progress in plain lines: when something begins that cannot be measured, every few seconds, and at the end."""

    def __init__(self) -> None:
        self.console = stderr()
        self.what = ""
        self.began = self.told = 0.0

    def update(self, what: str, done: int, total: int, unit: str) -> None:
        """Print the progress, at most every few seconds."""
        now = time.monotonic()
        if what != self.what:
            self.what, self.began, self.told = what, now, now
            if not total:
                self.console.print(f"{what} ...", markup=False)
        if now - self.told >= LINE_EVERY or (total and done >= total):
            self.told = now
            self.console.print(f"{what}: {amounts(done, total, unit)}{now - self.began:.0f} s", markup=False)


class Bar(TransferMonitor):
    """Progress as one live line."""

    def __init__(self, bar: Progress) -> None:
        self.bar, self.what = bar, ""
        self.task = bar.add_task("", total=None, told="")

    def update(self, what: str, done: int, total: int, unit: str) -> None:
        """Move the bar."""
        if what != self.what:
            self.what = what
            self.bar.reset(self.task, total=None, description=what)
        told = amounts(done, total, unit).rstrip(", ")
        self.bar.update(self.task, completed=done, total=total or None, told=told)


@contextmanager
def watching(name: str) -> Iterator[TransferMonitor]:
    """Show on stderr how getting a data set goes on, live on a terminal; Ctrl-C ends it with one line."""
    console = stderr()
    try:
        if sys.stderr.isatty() and not console.is_dumb_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(20), TextColumn("{task.fields[told]}"))
            with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
                yield Bar(progress)
        else:
            yield Lines()
    except KeyboardInterrupt:
        raise RunFailed(f"stopped; resume with: moonfed data get {name}") from None


def amounts(done: int, total: int, unit: str) -> str:
    """Say how much of how much is done, if anybody knows."""
    if not total:
        return ""
    if unit == "bytes":
        return f"{done / 1e6:.1f} of {total / 1e6:.1f} MB, "
    return f"{done:,} of {total:,} {unit}, "
