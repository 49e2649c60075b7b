"""Assigns parties to lanes: jobs of unequal length, one after another, in lanes that stay full."""

from collections.abc import Sequence
from typing import NamedTuple

MAX_CHUNK_STEPS = 16  # steps that are gathered, augmented and run through the anchors at once


class Assignment(NamedTuple):
    """Steps of a job in a lane: the job's steps job_step, ... are the lane's steps lane_step, ..."""

    job: int
    lane: int
    lane_step: int
    job_step: int
    steps: int


class Schedule(NamedTuple):
    """All assignments of a cohort, in the order of time."""

    assignments: list[Assignment]
    width: int
    steps: int  # of the longest lane, a multiple of chunk
    chunk: int


def make_schedule(lengths: Sequence[int], width: int, chunk: int) -> Schedule:
    """Fill one lane after the other; a job that does not fit into a lane starts in the next (McNaughton 1959).

    Such a job trains first at the start of the next lane, pauses, and finishes at the end of this one. So no lane is
    idle before the end, and no job is in two lanes at once, since none is longer than a lane. Every assignment begins
    with a chunk; longer lanes come first, so that the lanes still in use are always a prefix.
    """
    chunks = [-(-n // chunk) for n in lengths]
    room = max(*chunks, -(-sum(chunks) // width)) if len(chunks) > 1 else chunks[0]
    assignments: list[Assignment] = []
    lane = at = 0
    for job in sorted(range(len(lengths)), key=lambda j: -lengths[j]):
        late = min(chunks[job], room - at)  # the chunks that fit into this lane are the job's last ones
        early = chunks[job] - late
        if early:
            assignments.append(Assignment(job, lane + 1, 0, 0, early * chunk))
        assignments.append(Assignment(job, lane, at * chunk, early * chunk, lengths[job] - early * chunk))
        at += late
        if at == room:
            lane, at = lane + 1, early
    in_time = sorted(assignments, key=lambda a: (a.lane_step, a.lane))
    return Schedule(in_time, lane + (at > 0), room * chunk, chunk)


def pick_chunk(lengths: Sequence[int], limit: int = MAX_CHUNK_STEPS) -> int:
    """Choose the number of steps per chunk: large, but with few padding steps at the ends of the jobs."""

    def cost(chunk: int) -> float:
        return sum(-(-n // chunk) * chunk for n in lengths) * (1 + 0.25 / chunk)

    return min(range(1, limit + 1), key=cost)


def pick_width(lengths: Sequence[int], chunk: int, limit: int, overhead: float) -> int:
    """Choose the number of lanes that finishes first if a step of n lanes costs overhead + n."""
    chunks = [-(-n // chunk) for n in lengths]

    def cost(width: int) -> float:
        return max(*chunks, -(-sum(chunks) // width), 1) * (overhead + width)

    return min(range(1, max(1, min(limit, len(lengths))) + 1), key=cost)
