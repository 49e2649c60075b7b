"""How the tests call the command line: in this process, or in one of its own that may be killed."""

import hashlib
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from multiprocessing import forkserver
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import safe_open

SMALL = ["--model", "mlp", "--epochs", "1", "--parties", "4", "--rounds", "2"]
QUICK = ["--model", "mlp", "--epochs", "1", "--parties", "4", "--batch", "120", "--floor", "120"]  # few steps a round
# The mlp on 8x8 pictures: 64-128-64, the projection head 64-64-256, ten classes; weights and biases.
PARAMETERS = (64 * 128 + 128) + (128 * 64 + 64) + (64 * 64 + 64) + (64 * 256 + 256) + (256 * 10 + 10)


REFUSAL_SECONDS, HANG_SECONDS = 10, 60  # of processor time for a refusal; of any time on a busy machine


class Answer(NamedTuple):
    """What a command said and how it ended."""

    code: int
    out: str
    err: str

    @property
    def value(self) -> Any:
        """What a command with --json printed."""
        return json.loads(self.out)


def moonfed(*arguments: str | Path) -> Answer:
    """Run the command line in this process; an exception it lets through is the test's failure."""
    from moonfed.cli.main import _main  # pyright: ignore[reportPrivateUsage]

    before, sys.argv = sys.argv, ["moonfed", *map(str, arguments)]
    try:
        with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
            code = _main()
    finally:
        sys.argv = before
    return Answer(code, out.getvalue(), err.getvalue())


class Attempt:
    """The command line in a process of its own, forked from one in which torch is awake."""

    def __init__(
        self, *arguments: str | Path, prepare: Callable[..., None] | None = None, given: Any = None, screen: str = ""
    ) -> None:
        """Start it; prepare(given) is called in the new process first, and what is said goes to a screen or a file."""
        self._file = tempfile.NamedTemporaryFile("r", suffix=".txt")  # noqa: SIM115 (closed in end)
        words = [str(a) for a in arguments]
        given = (words, screen or self._file.name, prepare, given)
        self.process = _forks().Process(target=_attempt, args=given, daemon=True)
        self.process.start()

    @property
    def said(self) -> str:
        """Everything the process has said so far, on stdout and stderr together."""
        return Path(self._file.name).read_text()

    def await_word(self, word: str, seconds: float = 60) -> None:
        """Wait until the process has said a word."""
        ends = time.monotonic() + seconds
        while word not in self.said:
            assert self.process.is_alive(), self.said
            assert time.monotonic() < ends, self.said
            time.sleep(0.002)

    def send(self, number: signal.Signals) -> None:
        """Send the process a signal."""
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def end(self, seconds: float = 60) -> Answer:
        """Wait for the end; the code of a process that was killed is minus the signal."""
        self.process.join(seconds)
        assert self.process.exitcode is not None, f"still running after {seconds} s: {self.said}"
        answer = Answer(self.process.exitcode, self.said, self.said)
        self.process.close()
        self._file.close()
        return answer


def crash_at(given: tuple[int, tuple[str, ...]]) -> None:
    """Make this process end, as if the power failed, where it would make the n-th of some calls to the system."""
    last, names = given
    calls = 0

    def before(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == last:
                os._exit(CRASHED)
            return call(*arguments, **named)

        return counted

    for name in names:
        setattr(os, name, before(getattr(os, name)))


CRASHED = 70
CHANGES = ("mkdir", "fsync", "replace", "truncate", "unlink")  # every call with which a run changes names on the disk


def contents(folder: Path) -> dict[str, str]:
    """Hash every file below a folder, and name every folder."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in sorted(folder.rglob("*"))
    }


def rows(folder: Path) -> list[dict[str, Any]]:
    """Read a run's rounds."""
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


def bits(folder: Path) -> dict[str, Any]:
    """Everything a run computed, bit for bit: its rounds but for the seconds, its tensors, and no file beside them."""
    tensors: dict[str, Any] = {}
    for path in sorted(folder.rglob("*.safetensors")):
        with safe_open(str(path), framework="numpy") as file:
            names: list[str] = sorted(file.keys())
            held = {name: hashlib.sha256(file.get_tensor(name).tobytes()).hexdigest() for name in names}
        tensors[path.relative_to(folder).as_posix()] = held
    logs = {path.parent.relative_to(folder).as_posix(): rows(path.parent) for path in folder.rglob("rounds.jsonl")}
    for row in (row for log in logs.values() for row in log):
        del row["seconds"]
        row.pop("training_seconds", None)  # of sites that were not asked
    left = [path.name for path in folder.rglob(".*.tmp")]
    return {"rounds": logs, "tensors": tensors, "left behind": left}


def _forks() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["warm"])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *([before] if before else [])])
    forkserver.ensure_running()
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before
    return context


def _attempt(words: list[str], screen: str, prepare: Callable[..., None] | None, given: Any) -> None:
    handle = os.open(screen, os.O_WRONLY | os.O_APPEND)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    if prepare is not None:
        prepare(given)
    from moonfed.cli.main import _main  # pyright: ignore[reportPrivateUsage]

    sys.argv = ["moonfed", *words]
    sys.exit(_main())


def refused(answer: Answer) -> str:
    """Check that a command was refused as it should be, and return its one line."""
    assert answer.code == 2, answer
    assert answer.out == ""
    assert answer.err.startswith("moonfed: ")
    assert answer.err.count("\n") == 1
    assert answer.err.endswith("\n")
    return answer.err


def refuse(place: Path, *arguments: str | Path) -> str:
    """Give a command that must be refused soon, and check that every file below a folder is what it was."""
    before, started = contents(place), time.process_time()
    with _no_hang():
        line = refused(moonfed(*arguments))
    assert time.process_time() - started < REFUSAL_SECONDS
    assert contents(place) == before
    return line


@contextmanager
def _no_hang() -> Iterator[None]:
    """Fail a test that waits for ever, for example for somebody to write into a named pipe."""

    def ring(*_: object) -> None:
        raise AssertionError(f"no answer in {HANG_SECONDS} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(HANG_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
