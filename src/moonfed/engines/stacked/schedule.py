"""Which party trains in which lane, and when: jobs of unequal length, one behind the other, in lanes that stay full."""

from collections.abc import Sequence
from typing import NamedTuple

CHUNK = 16  # steps that are gathered, augmented and shown to the anchors at once


class Stay(NamedTuple):
    """A stay of a job in a lane: its steps begin, begin + 1, ... are the lane's first, first + 1, ..."""

    job: int
    lane: int
    first: int
    begin: int
    steps: int


class Schedule(NamedTuple):
    """All stays of a cohort, in the order of time."""

    stays: list[Stay]
    width: int
    steps: int  # of the longest lane, a multiple of chunk
    chunk: int


def schedule(lengths: Sequence[int], width: int, chunk: int) -> Schedule:
    """Fill one lane after the other; the job that a lane has no more room for begins in the next (McNaughton 1959).

    Such a job trains first at the start of the next lane, waits, and goes on at the end of this one: no lane is ever
    idle before the end, and no job is in two lanes at once, since none is longer than a lane. Every stay begins with a
    chunk; lanes with more to do come first, so that those still at work are always a prefix.
    """
    chunks = [-(-n // chunk) for n in lengths]
    room = max(*chunks, -(-sum(chunks) // width)) if len(chunks) > 1 else chunks[0]
    stays: list[Stay] = []
    lane = at = 0
    for job in sorted(range(len(lengths)), key=lambda j: -lengths[j]):
        late = min(chunks[job], room - at)  # the chunks that fit into this lane are the job's last ones
        early = chunks[job] - late
        if early:
            stays.append(Stay(job, lane + 1, 0, 0, early * chunk))
        stays.append(Stay(job, lane, at * chunk, early * chunk, lengths[job] - early * chunk))
        at += late
        if at == room:
            lane, at = lane + 1, early
    return Schedule(sorted(stays, key=lambda s: (s.first, s.lane)), lane + (at > 0), room * chunk, chunk)


def pick_chunk(lengths: Sequence[int], most: int = CHUNK) -> int:
    """Choose how many steps go together: many, but so that few are left over at the ends of the jobs."""

    def cost(chunk: int) -> float:
        return sum(-(-n // chunk) * chunk for n in lengths) * (1 + 0.25 / chunk)

    return min(range(1, most + 1), key=cost)


def pick_width(lengths: Sequence[int], chunk: int, most: int, overhead: float) -> int:
    """Choose the number of lanes that ends soonest if a step of n lanes takes overhead + n."""
    chunks = [-(-n // chunk) for n in lengths]

    def cost(width: int) -> float:
        return max(*chunks, -(-sum(chunks) // width), 1) * (overhead + width)

    return min(range(1, max(1, min(most, len(lengths))) + 1), key=cost)
