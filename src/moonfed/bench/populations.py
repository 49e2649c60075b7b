"""Times rounds of the same cohort drawn from small and large populations: start, round, memory, checkpoint, resume."""

import logging
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from moonfed.core.errors import RunFailed
from moonfed.core.files import parse_lines, read_log
from moonfed.storage.run_files import CHECKPOINT, CONFIG, LOG

logger = logging.getLogger(__name__)

COHORT, ROWS_PER_PARTY, ROUNDS = 50, 64, 12
LAST_WORDS = 300  # characters shown of what a command that failed said last


class PopulationTiming(NamedTuple):
    """MOON with 50 virtual parties per round, drawn from a population."""

    parties: int
    start_seconds: float  # from the command to the first round, Python's own start included
    round_seconds: float  # median of the rounds after the first
    peak_bytes: int  # of the main process
    checkpoint_bytes: int  # written in the last round
    resume_seconds: float  # from the command to the first round


class PopulationTimings(NamedTuple):
    """Timings of several populations, in one run of the bench."""

    timings: list[PopulationTiming]

    @property
    def round_ratio(self) -> float:
        """How many times longer a round of the largest population takes than one of the smallest."""
        ordered = sorted(self.timings)
        return ordered[-1].round_seconds / ordered[0].round_seconds

    def facts(self) -> dict[str, Any]:
        """The timings as a JSON object."""
        machine = {"cores": os.cpu_count(), "torch": torch.__version__, "python": platform.python_version()}
        found = [timing._asdict() for timing in self.timings]
        return {"cohort": COHORT, "populations": found, "round_ratio": self.round_ratio, "machine": machine}


def time_populations(sizes: Sequence[int], device: str, rounds: int = ROUNDS) -> PopulationTimings:
    """Run and resume the same command with populations of several sizes, each in a process of its own."""
    timings: list[PopulationTiming] = []
    for parties in sizes:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "run"
            words = ["--algorithm", "moon", "--population", f"virtual:{parties}", "--device", device, "--out", str(out)]
            words += ["--rows-per-party", str(ROWS_PER_PARTY), "--fraction", repr(COHORT / parties), "--epochs", "1"]
            start, peak = _run([*words, "--rounds", str(rounds)], out)
            records: list[dict[str, Any]] = parse_lines(read_log(out / LOG))
            written = [*(out / CHECKPOINT).glob(f"*-{rounds}.safetensors"), *(out / CHECKPOINT).glob("manifest*.json")]
            resume, _ = _run([*words, "--rounds", str(rounds + 1), "--resume"], out)
            seconds = statistics.median(record["seconds"] for record in records[1:])
            size = sum(path.stat().st_size for path in written)
        timings.append(PopulationTiming(parties, start, seconds, peak, size, resume))
        logger.info("%d parties: %.3f s per round", parties, seconds)
    return PopulationTimings(timings)


def _run(words: Sequence[str], out: Path) -> tuple[float, int]:
    """Run moonfed; return the seconds until its first round began, and the peak of its resident memory in bytes."""
    command, began = [sys.executable, "-m", "moonfed", "run", *words], time.time()
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said, text=True)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            last = (said.read().strip().splitlines() or ["it said nothing"])[-1]
            raise RunFailed(f"moonfed run ended with {process.returncode}: {last[:LAST_WORDS]}")
    return (out / CONFIG).stat().st_mtime - began, usage.ru_maxrss * 1024
