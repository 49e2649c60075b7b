"""Cuts a cohort into slices that may be trained apart; the cut depends on the jobs alone, never on who is free."""

from collections.abc import Sequence

from moonfed.engines.base import Engine, Job, JobResult
from moonfed.engines.devices import single_threaded
from moonfed.engines.stacked.stack_spec import MIN_LANES
from moonfed.engines.stacked.stacked_engine import stackable

Slice = list[int]  # places of jobs in the cohort, in order


class Sliced:
    """Runs an engine on one slice of a cohort after the other: the bits of as many workers, in this process.

    As in the worker of a slice, an operation on a CPU runs on one thread.
    """

    def __init__(self, engine: Engine, slices: int) -> None:
        self.engine, self.slices = engine, slices

    @property
    def width(self) -> int | None:
        """Lanes of the last stack."""
        return getattr(self.engine, "width", None)

    def run_cohort(self, jobs: Sequence[Job]) -> list[JobResult]:
        """Train every job's party; results are in the order of the jobs."""
        done: dict[int, JobResult] = {}
        with single_threaded():
            for places in cut_slices(jobs, self.slices):
                done |= dict(zip(places, self.engine.run_cohort([jobs[i] for i in places]), strict=True))
        return [done[i] for i in range(len(jobs))]


def cut_slices(jobs: Sequence[Job], slices: int) -> list[Slice]:
    """Cut a cohort into at most so many slices, about equally long.

    Jobs that may share a stack are cut into contiguous parts. No part holds a single one of them, whose kernels would
    give other bits.
    """
    steps = [len(job.plan.rows) for job in jobs]
    alone, groups = stackable(jobs)
    parts: list[Slice] = [[i] for i in alone]
    for members in groups:
        parts += _contiguous_parts(members, steps, max(1, min(slices, len(members) // MIN_LANES)))
    found: list[Slice] = [[] for _ in range(min(slices, len(parts)))]
    for part in sorted(parts, key=lambda part: -sum(steps[i] for i in part)):  # the longest first
        min(found, key=lambda places: sum(steps[i] for i in places)).extend(part)
    return [sorted(places) for places in found]


def _contiguous_parts(members: Slice, steps: Sequence[int], count: int) -> list[Slice]:
    """Cut places into parts of about as many steps, each of at least the lanes of a stack where there are as many."""
    parts: list[Slice] = []
    first = 0
    for left in range(count, 1, -1):
        rest = members[first:]
        wanted, taken, end = sum(steps[i] for i in rest) / left, 0.0, first
        last = len(members) - MIN_LANES * (left - 1)  # others need as many
        while end < last and (end < first + MIN_LANES or taken + steps[members[end]] / 2 <= wanted):
            taken += steps[members[end]]
            end += 1
        parts.append(members[first:end])
        first = end
    return [*parts, members[first:]]
