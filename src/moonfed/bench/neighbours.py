"""Times a comparison alone and beside processes that keep cores busy; both must end at the same bits."""

import hashlib
import logging
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from moonfed.core.errors import RunFailed

logger = logging.getLogger(__name__)

COMPARISON = ("compare", "moon", "fedavg", "--seeds", "0,1,2", "--rounds", "5", "--device", "cpu")
BUSY_LOOP = "while True: pass"


class NeighbourTiming(NamedTuple):
    """Seconds of the same command alone and beside busy neighbours, in turn."""

    neighbours: int
    alone: list[float]
    beside: list[float]

    @property
    def times_slower(self) -> float:
        """How much longer the command takes beside its neighbours, by the medians."""
        return statistics.median(self.beside) / statistics.median(self.alone)

    def facts(self) -> dict[str, Any]:
        """The timing as a JSON object."""
        machine = {"cores": os.cpu_count(), "torch": torch.__version__, "python": platform.python_version()}
        return {**self._asdict(), "times_slower": self.times_slower, "same_bits": True, "machine": machine}


def time_beside_neighbours(neighbours: int, repeats: int = 3, command: Sequence[str] = COMPARISON) -> NeighbourTiming:
    """Time a comparison alone and beside processes that burn a core each; different bits are an error."""
    timing = NeighbourTiming(neighbours, [], [])
    digests: set[str] = set()
    for repeat in range(1, repeats + 1):  # in turn, so that changes of the machine's speed affect both
        for count, seconds in ((0, timing.alone), (neighbours, timing.beside)):
            with busy_processes(count), tempfile.TemporaryDirectory() as folder:
                seconds.append(_run(command, Path(folder) / "runs"))
                digests.add(_digest(Path(folder) / "runs"))
            logger.info("beside %d busy processes, run %d: %.1f s", count, repeat, seconds[-1])
    if len(digests) > 1:
        raise RunFailed("the runs beside busy processes ended at other weights than those alone; timing discarded")
    return timing


@contextmanager
def busy_processes(count: int) -> Generator[None]:
    """Keep as many processes busy for a while."""
    started = [subprocess.Popen([sys.executable, "-c", BUSY_LOOP]) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def _run(command: Sequence[str], out: Path) -> float:
    began = time.perf_counter()
    whole = [sys.executable, "-m", "moonfed", *command, "--out", str(out)]
    done = subprocess.run(whole, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise RunFailed(f"moonfed {' '.join(command)} ended with {done.returncode}: {last[:300]}")
    return time.perf_counter() - began


def _digest(out: Path) -> str:
    """Hash the weights of all trials."""
    digest = hashlib.sha256()
    for path in sorted(out.rglob("final.safetensors")):
        digest.update(f"{path.relative_to(out)} ".encode() + path.read_bytes())
    return digest.hexdigest()
