"""Progress: a live line on a terminal, plain lines elsewhere; always on stderr, so that stdout stays the answer."""

import logging
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from types import FrameType
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from moonfed.core.errors import RunFailed
from moonfed.training.callbacks import Callback, Finished
from moonfed.training.records import RoundRecord

if TYPE_CHECKING:
    from moonfed.training.trial import Trial

WARNING = "warning: "


def stderr() -> Console:
    """Look at stderr as it is now: a terminal or not, and of which kind."""
    return Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)


def print_line(line: str) -> None:
    """Print a line to stderr."""
    stderr().print(line, markup=False)


class MessageHandler(logging.Handler):
    """Hands every message of the package to a function, as one line."""

    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self.show = show

    def emit(self, record: logging.LogRecord) -> None:
        """Show a message; a warning says that it is one."""
        text = record.getMessage()
        self.show(f"{WARNING}{text}" if record.levelno >= logging.WARNING else text)


@contextmanager
def messages_to(show: Callable[[str], None]) -> Iterator[None]:
    """Show the package's messages with a function while a part of a command lasts, instead of how they were shown."""
    logger = logging.getLogger("moonfed")
    others, level = [handler for handler in logger.handlers if isinstance(handler, MessageHandler)], logger.level
    for other in others:
        logger.removeHandler(other)
    handler = MessageHandler(show)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        for other in others:
            logger.addHandler(other)


class Display(Callback):
    """Shows how a run proceeds, and notices Ctrl-C."""

    def __init__(self, resume_place: str = "") -> None:
        self.console, self.resume_place = stderr(), resume_place  # the place is named if it has no round to resume
        self.started = self.stopping = False
        self.began = time.perf_counter()
        self.first = self.last = 0
        self.bar: Progress | None = None

    def on_start(self, trials: "Sequence[Trial]") -> None:
        """Show where the trials start from."""
        self.started = True
        self.first = min(trial.round for trial in trials)
        self.last = max(trial.config.train.rounds for trial in trials)
        self.began = time.perf_counter()
        if all(trial.done for trial in trials):
            rounds = "the only round was" if self.last == 1 else f"all {self.last} rounds were"
            rounds = "the run stopped early and was" if any(trial.stopped for trial in trials) else rounds
            self.console.print(f"nothing left to do: {rounds} done before")
        elif self.first:
            self.console.print(f"resumed after round {self.first} of {self.last}")
        elif self.resume_place and not any(trial.round for trial in trials):
            self.show(f"there is no saved round to resume {self.resume_place}; starting from the first round")
        self.resume_place = ""  # once per command, which may run several groups of trials
        if self.bar is not None:
            for earlier in self.bar.task_ids:
                self.bar.remove_task(earlier)
            self.task = self.bar.add_task("round", total=self.last, completed=self.first, summary="")

    def show(self, line: str) -> None:
        """Show a message of the package."""
        self.console.print(line, markup=False)

    def on_round(self, finished: Finished) -> bool:
        """Show a finished round; True once the user has asked to stop."""
        if finished:
            records = [record for _, record in finished]
            round, summary = records[0]["round"], summary_of(records)
            if self.bar is not None:
                self.bar.update(self.task, completed=round, summary=summary)
            else:
                spent = time.perf_counter() - self.began
                left = spent / max(1, round - self.first) * (self.last - round)
                self.console.print(f"round {round}/{self.last}  {summary}  {spent:.0f} s, {left:.0f} s left")
        return self.stopping

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """Let the round end and be saved; a second Ctrl-C stops at once, and so does one before the first round."""
        if self.stopping or not self.started or number == signal.SIGTERM:
            raise KeyboardInterrupt
        self.stopping = True
        self.console.print("stopping after this round; press Ctrl-C again to stop at once")


def summary_of(records: Sequence[RoundRecord]) -> str:
    """Summarise a round in a few words; of several trials, the means, and the parts of the loss that all have."""
    parts = set[str].intersection(*(set(record["losses"]) for record in records))
    losses = {k: _mean([record["losses"][k] for record in records]) for k in sorted(parts, reverse=True)}
    words = "  ".join(f"{k} {v:.3f}" for k, v in losses.items())
    scores = [record["accuracy"] for record in records if record["accuracy"] is not None]
    several = f"mean of {len(records)} trials: " if len(records) > 1 else ""
    return several + (f"accuracy {_mean(scores):.1%}  " if scores else "") + f"loss: {words}"


class Rounds(Progress):
    """A bar, and below it a summary of the last round: side by side they would not fit into 80 columns."""

    def get_renderables(self) -> Iterator[RenderableType]:
        """Show the bar and the summary."""
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            if task.fields["summary"]:
                yield Text(task.fields["summary"], no_wrap=True, overflow="ellipsis")


@contextmanager
def showing(also: Sequence[signal.Signals] = (), resume: bool = False, folder: Path | None = None) -> Iterator[Display]:
    """Show progress while a run lasts; also lists further signals that end the command (SIGTERM, to end children).

    With resume it is said if there is nothing to resume, in the folder that was named or else with these settings.
    """
    place = "with these settings" if folder is None else f"in {folder}"
    display = Display(place if resume else "")
    before = {number: signal.signal(number, display.interrupt) for number in (signal.SIGINT, *also)}
    try:
        if sys.stderr.isatty() and not display.console.is_dumb_terminal:
            columns = (
                TextColumn("round {task.completed:.0f}/{task.total:.0f}"),
                BarColumn(bar_width=24),
                TimeElapsedColumn(),
                TextColumn("elapsed,"),
                TimeRemainingColumn(),
                TextColumn("left"),
            )
            with Rounds(*columns, console=display.console) as display.bar, messages_to(display.show):
                yield display
        else:
            with messages_to(display.show):
                yield display
    except KeyboardInterrupt:  # not left to typer, which would end without a word
        if not display.started:
            raise RunFailed("stopped before the first round; run the same command again") from None
        raise RunFailed("stopped at once; continue from the last saved round with --resume") from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def working(patience: float = 2.0) -> Iterator[None]:
    """Show the package's messages as one live line on a terminal, elsewhere as lines once it has taken a while."""
    console, began = stderr(), time.perf_counter()
    if console.is_terminal and not console.is_dumb_terminal:
        with console.status("") as status:

            def show_live(line: str) -> None:
                status.update(Text(line))
                if line.startswith(WARNING):  # stays when the live line goes
                    console.print(line, markup=False)

            with messages_to(show_live):
                yield
        return
    current = ["working"]

    def print_line() -> None:
        console.print(f"{current[0]}, {time.perf_counter() - began:.0f} s", markup=False)

    def show(line: str) -> None:
        if line.startswith(WARNING):
            console.print(line, markup=False)
            return
        current[0] = line
        if time.perf_counter() - began > patience:
            print_line()

    first = Timer(patience, print_line)  # for a step that began before and lasts
    first.daemon = True
    first.start()
    try:
        with messages_to(show):
            yield
    finally:
        first.cancel()


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
