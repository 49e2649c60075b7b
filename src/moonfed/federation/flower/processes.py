"""The processes of a federation: started with everything off that calls home, and ended with all they started."""

import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from moonfed.core.errors import RunFailed, UserError
from moonfed.federation.flower.node_log import last_words

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
}
STOP_SECONDS = 8.0
PROCESS_HEADER = "moonfed-process"  # with which a site's node tells the door which process it is


def need_flower() -> None:
    """Say what to install where Flower is not."""
    try:
        import flwr  # noqa: F401
    except ImportError:
        raise UserError("a federation needs Flower, which is not installed; pip install 'moonfed[flower]'") from None


def environment(home: Path) -> dict[str, str]:
    """Make the environment of a Flower process: no telemetry, no update check, nothing installed at run time."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return dict(os.environ) | QUIET | {"FLWR_HOME": str(home), "PATH": path, "PYTHONUNBUFFERED": "1"}


class Child:
    """A process with a group of its own, whose output goes to a file."""

    def __init__(self, words: Sequence[str], log: Path, home: Path) -> None:
        self.log = log
        with log.open("ab") as file:
            self.read = file.tell()  # so far; what was said before is another's
            self.process = subprocess.Popen(
                [sys.executable, *words],
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

    def last_words(self) -> str:
        """Say the last trouble it spoke of, for an error."""
        return last_words(self.said())

    def said(self) -> list[str]:
        """Read the lines that it has said since the last look."""
        with self.log.open("rb") as file:
            file.seek(self.read)
            content = file.read()
        whole = content if not self.alive else content[: content.rfind(b"\n") + 1]
        self.read += len(whole)
        return whole.decode(errors="replace").splitlines()

    def tell(self, number: signal.Signals) -> None:
        """Send a signal to the process and all that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """End it and all that it started, by force if need be."""
        stop_all([self], seconds)


def stop_all(children: Sequence[Child], seconds: float = STOP_SECONDS) -> None:
    """End processes together: first a word, then, to whatever is left of their groups, force."""
    for child in children:
        child.tell(signal.SIGTERM)
    ends = time.monotonic() + seconds
    for child in children:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.process.wait(max(0.05, ends - time.monotonic()))
        child.tell(signal.SIGKILL)
        child.process.wait()


def free_port() -> int:
    """Find a port of this machine that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listening(host: str, port: int, seconds: float = 15) -> socket.socket:
    """Listen on a port: who comes waits until somebody answers. The last to listen there may be on its way out."""
    ends = time.monotonic() + seconds
    while True:
        own = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        try:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            own.bind((host, port))
            own.listen(128)
            return own
        except OSError as error:
            own.close()
            if time.monotonic() > ends or error.errno != errno.EADDRINUSE:
                raise UserError(
                    f"cannot listen on {host}:{port}: {error.strerror}; end what listens there, or use another port"
                ) from None
        time.sleep(0.1)


def await_port(host: str, port: int, child: Child, what: str, seconds: float = 60) -> None:
    """Wait until a process listens."""
    ends = time.monotonic() + seconds
    while True:
        try:
            with socket.create_connection((host, port), 1):
                return
        except OSError:
            if not child.alive:
                raise RunFailed(f"{what} ended at once: {child.last_words()} (see {child.log})") from None
            if time.monotonic() > ends:
                raise RunFailed(f"{what} does not listen after {seconds:.0f} s; see {child.log}") from None
            time.sleep(0.05)


def end_with_parent(parent: int) -> None:
    """End this process when the one that started it is gone, however it went."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(STOP_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
