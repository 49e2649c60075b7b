"""The processes of a federation: started without telemetry or update checks, and ended with all they started."""

import contextlib
import errno
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from moonfed.core.errors import RunFailed, UserError
from moonfed.federation.flower.node_log import summarize_log

FLOWER_ENVIRONMENT = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
}
STOP_SECONDS = 8.0
PROCESS_HEADER = "moonfed-process"  # with which a site's node tells the proxy which process it is


def need_flower() -> None:
    """Say what to install if Flower is missing."""
    try:
        import flwr  # noqa: F401
    except ImportError:
        raise UserError("a federation needs Flower, which is not installed; pip install 'moonfed[flower]'") from None


def log_to(stream: TextIO) -> None:
    """Write moonfed's log messages to a stream, in a process that has no command line of ours."""
    logger = logging.getLogger("moonfed")
    if not logger.handlers:
        handler = logging.StreamHandler(stream)
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False  # Flower installs handlers of its own


def environment(home: Path) -> dict[str, str]:
    """Make the environment of a Flower process: no telemetry, no update check, nothing installed at run time."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return dict(os.environ) | FLOWER_ENVIRONMENT | {"FLWR_HOME": str(home), "PATH": path, "PYTHONUNBUFFERED": "1"}


class ChildProcess:
    """A process in a group of its own, whose output goes to a log file."""

    def __init__(self, arguments: Sequence[str], log: Path, home: Path) -> None:
        self.log = log
        with log.open("ab") as file:  # not through moonfed.core.files: the child writes to the open handle
            self.position = file.tell()  # what is before it was written by an earlier process
            self.process = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment(home),
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        """Whether it is still running."""
        return self.process.poll() is None

    def error_summary(self) -> str:
        """Summarise the unread end of its log for an error message."""
        return summarize_log(self.new_lines())

    def new_lines(self) -> list[str]:
        """Read the lines that it has logged since the last call."""
        with self.log.open("rb") as file:
            file.seek(self.position)
            content = file.read()
        complete = content if not self.alive else content[: content.rfind(b"\n") + 1]
        self.position += len(complete)
        return complete.decode(errors="replace").splitlines()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and all that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """End it and all that it started, by force if necessary."""
        stop_all([self], seconds)


def stop_all(children: Sequence[ChildProcess], seconds: float = STOP_SECONDS) -> None:
    """End processes together: SIGTERM first, then SIGKILL to what is left of their groups."""
    for child in children:
        child.signal(signal.SIGTERM)
    deadline = time.monotonic() + seconds
    for child in children:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.process.wait(max(0.05, deadline - time.monotonic()))
        child.signal(signal.SIGKILL)
        child.process.wait()


def free_port() -> int:
    """Find an unused port of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listen(host: str, port: int, seconds: float = 15) -> socket.socket:
    """Listen on a port; retry for some seconds, since an earlier process may still be closing it."""
    deadline = time.monotonic() + seconds
    while True:
        listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            listener.listen(128)
            return listener
        except OSError as error:
            listener.close()
            if time.monotonic() > deadline or error.errno != errno.EADDRINUSE:
                raise UserError(
                    f"cannot listen on {host}:{port}: {error.strerror}; stop what listens there, or use another port"
                ) from None
        time.sleep(0.1)


def wait_for_port(host: str, port: int, child: ChildProcess, name: str, seconds: float = 60) -> None:
    """Wait until a process listens."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            with socket.create_connection((host, port), 1):
                return
        except OSError:
            if not child.alive:
                raise RunFailed(f"{name} ended at once: {child.error_summary()} (see {child.log})") from None
            if time.monotonic() > deadline:
                raise RunFailed(f"{name} does not listen after {seconds:.0f} s; see {child.log}") from None
            time.sleep(0.05)


def exit_with_parent(parent: int) -> None:
    """End this process when the one that started it is gone, for whatever reason."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(STOP_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
