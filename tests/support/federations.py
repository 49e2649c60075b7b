"""Real federations for the tests: a coordinator and sites, each in a process of its own, over TLS on loopback."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from commands import Attempt, bits, moonfed

from moonfed.federation.flower.processes import free_port
from moonfed.federation.pki.coordinator_folder import CoordinatorFolder

SMALL = ["--model", "mlp", "--batch", "16", "--threads", "1"]


class Federation:
    """The folders of a coordinator and its sites, and the processes that run in them."""

    def __init__(self, folder: Path, sites: int = 3, admitted: int | None = None) -> None:
        self.folder, self.names = folder, [f"site-{i}" for i in range(sites)]
        self.running: list[Attempt] = []
        home = self.home = folder / "coordinator"
        answer = moonfed("federation", "init", home, "--host", "127.0.0.1", "--port", str(free_port()), "--days", "2")
        assert answer.code == 0, answer
        for i, name in enumerate(self.names):
            where = ("--invitation", home / "invitation.json", "--name", name, "--share", str(i), "--threads", "1")
            assert moonfed("site", "init", folder / name, *where).code == 0
            if admitted is None or i < admitted:
                assert moonfed("federation", "admit", home, name, folder / name / "site.key.pub").code == 0

    def start(self, *words: str | Path) -> Attempt:
        """Start the coordinator."""
        patience = ("--deadline", "90", "--listen", "127.0.0.1")
        return self._run("federation", "start", self.home, "--out", self.folder / "run", *SMALL, *patience, *words)

    def join(self, name: str) -> Attempt:
        """Start a site."""
        return self._run("site", "join", self.folder / name)

    def _run(self, *words: str | Path) -> Attempt:
        attempt = Attempt(*words)
        self.running.append(attempt)
        return attempt

    def end(self) -> None:
        """Stop whatever still runs, and check that no process is left."""
        for attempt in self.running:
            with suppress(ValueError):  # it was waited for before
                if attempt.process.is_alive():
                    attempt.send(signal.SIGTERM)
        for attempt in self.running:
            with suppress(ValueError):
                attempt.end(20)
        assert_nothing_runs(self.folder)

    @property
    def port(self) -> int:
        """Where the coordinator listens."""
        return CoordinatorFolder(self.home).address()[1]


def kill(attempt: Attempt) -> None:
    """End a process at once, as a power cut would."""
    attempt.send(signal.SIGKILL)
    attempt.process.join(20)


def processes(folder: Path) -> list[tuple[int, str]]:
    """List the processes whose command names a folder."""
    found: list[tuple[int, str]] = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit() and int(place.name) != os.getpid():
            try:
                words = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                state = (place / "stat").read_text().rsplit(")", 1)[1].split()[0]
            except OSError:
                continue
            if str(folder) in words and state != "Z":
                found.append((int(place.name), words))
    return found


def assert_nothing_runs(folder: Path, seconds: float = 15) -> None:
    """Check that no process of a federation is left; one that is ending may take a moment."""
    ends = time.monotonic() + seconds
    while left := processes(folder):
        assert time.monotonic() < ends, left
        time.sleep(0.1)


def simulated(folder: Path, parties: int, *words: str) -> dict[str, str]:
    """Simulate the same trial with the reference engine; return its final weights, bit for bit."""
    engine = ("--engine", "sequential", "--parties", str(parties))
    answer = moonfed("run", *SMALL, *engine, *words, "--out", folder)
    assert answer.code == 0, answer
    return weights(folder)


def weights(folder: Path) -> dict[str, str]:
    """The final weights of a run, bit for bit."""
    return bits(folder)["tensors"]["final.safetensors"]
