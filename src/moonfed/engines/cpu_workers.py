"""Trains a cohort in single-threaded processes side by side, one per core.

Threads that share every small operation wait for each other at each of them, and on a busy machine for whatever else
runs. Processes have nothing to wait for. A cohort is cut into units by its jobs alone, so that neither the number of
cores nor the load changes a bit.

The processes are forked for one cohort: they inherit data, networks, rules and traced steps, and return results.
"""

import contextlib
import ctypes
import gc
import logging
import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Sequence

import torch

from moonfed.engines.base import Engine, Job, JobResult
from moonfed.engines.devices import single_threaded
from moonfed.engines.stacked.stack_spec import MIN_LANES
from moonfed.engines.stacked.stacked_engine import stackable
from moonfed.engines.worker_codec import decode_results, encode_results

logger = logging.getLogger(__name__)

JOBS_PER_UNIT = 16  # of equal shape: a wider stack hardly takes less time per lane
MIN_UNITS = 2  # per shape, so that a single trial uses two cores
MANY_SHAPES = 8  # of a cohort, from which shapes alone keep the cores busy: wider stacks take less time per lane
MIN_FORK_SECONDS = 0.3  # work of a cohort below which forking costs more than it saves
MIN_PATIENCE = 60.0  # seconds that this process waits for another at least, beside ten times its own
PLACE_BYTES = 4  # of a unit's place in the queue
MAX_UNITS = 2000  # per shape: the queue, a pipe, holds the places of 16,384
STDERR = 2
PR_SET_PDEATHSIG = 1  # of Linux' prctl: a process that dies with its parent

Unit = list[int]  # places of jobs in the cohort


class CpuWorkers:
    """Runs an engine on the units of a cohort, in this process and in forked ones."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.processes = torch.get_num_threads() if can_fork() else 1
        self.cohorts = 0  # run so far
        self.seconds_per_step: float | None = None  # of one process and party, measured

    @property
    def width(self) -> int | None:
        """Lanes of the last stack of this process."""
        return getattr(self.engine, "width", None)

    def run_cohort(self, jobs: Sequence[Job]) -> list[JobResult]:
        """Train every job's party; results are in the order of the jobs."""
        units = cut(jobs)
        first = self.cohorts % len(units) if units else 0  # another unit every time: steps that are traced here
        units = units[first:] + units[:first]  # are inherited by the processes of later cohorts
        self.cohorts += 1
        began, steps = time.perf_counter(), sum(len(job.plan.rows) for job in jobs)
        small = self.seconds_per_step is not None and steps * self.seconds_per_step < MIN_FORK_SECONDS
        processes = 1 if small else min(self.processes, len(units))
        with single_threaded():
            done = self._run_units(jobs, units) if processes == 1 else self._run_side_by_side(jobs, units, processes)
        self.seconds_per_step = (time.perf_counter() - began) * processes / max(1, steps)
        return [done[i] for i in range(len(jobs))]

    def _run_units(self, jobs: Sequence[Job], units: Sequence[Unit]) -> dict[int, JobResult]:
        done: dict[int, JobResult] = {}
        for unit in units:
            done |= dict(zip(unit, self.engine.run_cohort([jobs[i] for i in unit]), strict=True))
        return done

    def _run_side_by_side(self, jobs: Sequence[Job], units: Sequence[Unit], processes: int) -> dict[int, JobResult]:
        """Let several processes, this one among them, take units from a queue until it is empty."""
        queue, fill = os.pipe()
        os.write(fill, b"".join(place.to_bytes(PLACE_BYTES, "little") for place in range(len(units))))
        os.close(fill)
        children: dict[int, int] = {}  # process to the pipe with its results
        began = time.monotonic()
        try:
            for _ in range(processes - 1):
                self._start_child(jobs, units, queue, children)
            done = self._take_units(jobs, units, queue)
            now = time.monotonic()
            deadline = now + MIN_PATIENCE + 10 * (now - began)
            for results in children.values():
                if select.select([results], [], [], max(0.0, deadline - time.monotonic()))[0]:
                    done |= decode_results(_read_all(results))
                else:
                    self.processes = 1
                    logger.warning("a process did not answer; training continues in one process")
        finally:
            os.close(queue)
            for child, results in children.items():
                os.close(results)
                with contextlib.suppress(ProcessLookupError, ChildProcessError):  # somebody else has waited for it
                    os.kill(child, signal.SIGKILL)  # it has nothing left to do, or nobody waits for it
                    os.waitpid(child, 0)
        missing = [unit for unit in units if unit[0] not in done]  # of a process that failed: its error surfaces here
        return done | self._run_units(jobs, missing)

    def _start_child(self, jobs: Sequence[Job], units: Sequence[Unit], queue: int, children: dict[int, int]) -> None:
        """Fork a process that works on the queue, and note the pipe of its results; nothing is noted if it fails."""
        results, sink = os.pipe()
        signals = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})  # until it is noted
        try:
            if (child := _fork()) == 0:
                try:
                    _become_worker(queue, sink)
                    content = encode_results(self._take_units(jobs, units, queue))
                    with os.fdopen(sink, "wb") as file:
                        file.write(content)
                finally:
                    os._exit(0)  # whatever failed, the parent repeats
            children[child] = results
        except OSError as error:  # no more processes, or no memory for one
            logger.info("training in fewer processes: %s", error.strerror)
            os.close(results)
        finally:
            os.close(sink)
            signal.pthread_sigmask(signal.SIG_SETMASK, signals)

    def _take_units(self, jobs: Sequence[Job], units: Sequence[Unit], queue: int) -> dict[int, JobResult]:
        done: dict[int, JobResult] = {}
        while content := os.read(queue, PLACE_BYTES):
            done |= self._run_units(jobs, [units[int.from_bytes(content, "little")]])
        return done


def can_fork() -> bool:
    """Whether processes can be forked: on Linux, and where torch has no threads for GPUs, which a fork would lose."""
    return sys.platform == "linux" and not torch.cuda.is_available()


def cut(jobs: Sequence[Job]) -> list[Unit]:
    """Cut a cohort into units of jobs that may share a stack, about equally long; the longest unit first."""
    steps = [len(job.plan.rows) for job in jobs]
    alone, groups = stackable(jobs)
    units: list[Unit] = [[i] for i in alone]
    least = MIN_UNITS if len(groups) < MANY_SHAPES else 1
    for members in groups:
        count = max(1, min(len(members) // MIN_LANES, max(least, -(-len(members) // JOBS_PER_UNIT)), MAX_UNITS))
        own: list[Unit] = [[] for _ in range(count)]
        for i in sorted(members, key=lambda i: -steps[i]):
            min(own, key=lambda unit: sum(steps[k] for k in unit)).append(i)
        for unit in own:
            while len(unit) < min(MIN_LANES, len(members)):  # one long job: it gets a short one as company
                unit.append(max(own, key=len).pop())
        units += own
    return sorted(units, key=lambda unit: -sum(steps[i] for i in unit))


def _fork() -> int:
    """Fork this process; Python warns of locks that other threads hold, none of which a worker takes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _become_worker(queue: int, sink: int) -> None:
    """Leave what is the parent's alone: its signals, its log, its open files and their locks."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    logging.disable()
    gc.disable()  # a collection would write to memory that is shared until then
    for name in os.listdir("/proc/self/fd"):
        if int(name) > STDERR and int(name) not in (queue, sink):
            with contextlib.suppress(OSError):  # the folder's own
                os.close(int(name))


def _read_all(pipe: int) -> bytes:
    with os.fdopen(os.dup(pipe), "rb") as file:
        return file.read()
