"""Which party trains in which lane, and when: jobs of unequal length, one behind the other, in lanes that stay full."""

import heapq
from collections.abc import Sequence
from typing import NamedTuple

CHUNK = 16  # steps that are gathered, augmented and shown to the anchors at once


class Stay(NamedTuple):
    """A job's stay in a lane: its steps are first, first + 1, ... of the lane."""

    job: int
    lane: int
    first: int


class Schedule(NamedTuple):
    """All stays of a cohort; lanes with more to do come first, so that those still at work are always a prefix."""

    stays: list[Stay]
    width: int
    steps: int  # of the longest lane, a multiple of chunk
    chunk: int


def schedule(lengths: Sequence[int], width: int, chunk: int) -> Schedule:
    """Give the longest job that is left to the lane that is free first; every job starts with a chunk."""
    lanes: list[tuple[int, int, list[int]]] = [(0, lane, []) for lane in range(min(width, len(lengths)))]
    for job in sorted(range(len(lengths)), key=lambda j: -lengths[j]):
        load, lane, jobs = heapq.heappop(lanes)
        heapq.heappush(lanes, (load + -(-lengths[job] // chunk) * chunk, lane, [*jobs, job]))
    stays: list[Stay] = []
    full = sorted(lanes, key=lambda lane: -lane[0])
    for place, (_, _, jobs) in enumerate(full):
        first = 0
        for job in jobs:
            stays.append(Stay(job, place, first))
            first += -(-lengths[job] // chunk) * chunk
    return Schedule(stays, len(full), full[0][0], chunk)


def pick_chunk(lengths: Sequence[int], most: int = CHUNK) -> int:
    """Choose how many steps go together: many, but so that few are left over at the ends of the jobs."""

    def cost(chunk: int) -> float:
        return sum(-(-n // chunk) * chunk for n in lengths) * (1 + 0.25 / chunk)

    return min(range(1, most + 1), key=cost)


def pick_width(lengths: Sequence[int], chunk: int, most: int, overhead: float) -> int:
    """Choose the number of lanes that ends soonest if a step of n lanes takes overhead + n."""
    longest = max(-(-n // chunk) for n in lengths)
    total = sum(-(-n // chunk) for n in lengths)
    most = max(1, min(most, len(lengths)))
    least = min(most, -(-total // longest))  # with fewer lanes the longest job would not be what is waited for
    tried = range(least, min(most, least + max(4, least // 2)) + 1)
    return min(tried, key=lambda width: schedule(lengths, width, chunk).steps * (overhead + width))
