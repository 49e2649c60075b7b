"""Progress: a live line on a terminal, plain lines elsewhere; always on stderr, so that stdout stays the answer."""

import logging
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Timer
from types import FrameType

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from moonfed.core.errors import RunFailed
from moonfed.training.loop import RoundRecord
from moonfed.training.trial import Trial


class _StderrHandler(logging.Handler):
    """Prints log messages on stderr as plain lines."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one message."""
        stderr().print(record.getMessage(), markup=False)


@contextmanager
def log_to_stderr() -> Iterator[None]:
    """Show the log messages of the package on stderr while a command runs."""
    logger, handler = logging.getLogger("moonfed"), _StderrHandler()
    logger.addHandler(handler)
    before = logger.level
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)


def stderr() -> Console:
    """Look at stderr as it is now: a terminal or not, and of which kind."""
    return Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)


class Display:
    """Shows how a run goes on, and notices Ctrl-C."""

    def __init__(self) -> None:
        self.console = stderr()
        self.begun = self.stopping = False
        self.began = time.perf_counter()
        self.first = self.last = 0
        self.bar: Progress | None = None

    def start(self, trials: list[Trial]) -> None:
        """Say where the trials start from."""
        self.begun = True
        self.first = min(trial.round for trial in trials)
        self.last = max(trial.config.train.rounds for trial in trials)
        self.began = time.perf_counter()
        if self.first >= self.last:
            self.console.print(f"nothing left to do: all {self.last} rounds were done before")
        elif self.first:
            self.console.print(f"resumed after round {self.first} of {self.last}")
        if self.bar is not None:
            self.task = self.bar.add_task("round", total=self.last, completed=self.first, told="")

    def say(self, line: str) -> None:
        """Show what an engine has to say."""
        self.console.print(line, markup=False)

    def after_round(self, round: int, rows: list[RoundRecord]) -> bool:
        """Show a finished round; False once the user has asked to stop."""
        if not rows:  # every trial failed in it
            return not self.stopping
        told = told_of(rows)
        if self.bar is not None:
            self.bar.update(self.task, completed=round, told=told)
        else:
            spent = time.perf_counter() - self.began
            left = spent / max(1, round - self.first) * (self.last - round)
            self.console.print(f"round {round}/{self.last}  {told}  {spent:.0f} s, {left:.0f} s left")
        return not self.stopping

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """Let the round end and be saved; a second Ctrl-C stops at once, and so does one before there is a round."""
        if self.stopping or not self.begun or number == signal.SIGTERM:
            raise KeyboardInterrupt
        self.stopping = True
        self.console.print("stopping after this round; press Ctrl-C again to stop at once")


def told_of(rows: list[RoundRecord]) -> str:
    """Say in a few words how a round went, averaged over the trials."""
    parts = {k for row in rows for k in row["losses"]}
    means = {k: _mean([row["losses"][k] for row in rows if k in row["losses"]]) for k in sorted(parts, reverse=True)}
    losses = "  ".join(f"{k} {v:.3f}" for k, v in means.items())
    scored = [row["accuracy"] for row in rows if row["accuracy"] is not None]
    return (f"accuracy {_mean(scored):.1%}  " if scored else "") + losses


class Rounds(Progress):
    """A bar, and below it how the last round went: together they would not fit into 80 columns."""

    def get_renderables(self) -> Iterator[RenderableType]:
        """Show the bar and the words."""
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            if task.fields["told"]:
                yield Text(task.fields["told"], no_wrap=True, overflow="ellipsis")


@contextmanager
def showing(also: Sequence[signal.Signals] = ()) -> Iterator[Display]:
    """Show progress while a run lasts; with SIGTERM, a command that has started others ends them before it goes."""
    display = Display()
    before = {number: signal.signal(number, display.interrupt) for number in (signal.SIGINT, *also)}
    try:
        if sys.stderr.isatty() and not display.console.is_dumb_terminal:
            columns = (
                TextColumn("round {task.completed:.0f}/{task.total:.0f}"),
                BarColumn(bar_width=24),
                TimeElapsedColumn(),
                TextColumn("gone,"),
                TimeRemainingColumn(),
                TextColumn("left"),
            )
            with Rounds(*columns, console=display.console) as display.bar:
                yield display
        else:
            yield display
    except KeyboardInterrupt:  # not left to typer, which would end without a word
        if not display.begun:
            raise RunFailed("stopped before a round began; the same command starts again") from None
        raise RunFailed("stopped at once; go on from the last saved round with --resume") from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def working(patience: float = 2.0) -> Iterator[Callable[[str], None]]:
    """Say what is being done: in one live line on a terminal, elsewhere in lines once it has taken two seconds."""
    console, began = stderr(), time.perf_counter()
    if console.is_terminal and not console.is_dumb_terminal:
        with console.status("") as status:
            yield lambda line: status.update(Text(line))
        return
    now = ["working"]

    def tell() -> None:
        console.print(f"{now[0]}, {time.perf_counter() - began:.0f} s", markup=False)

    def say(line: str) -> None:
        now[0] = line
        if time.perf_counter() - began > patience:
            tell()

    first = Timer(patience, tell)  # a step that began before and lasts
    first.daemon = True
    first.start()
    try:
        yield say
    finally:
        first.cancel()


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
