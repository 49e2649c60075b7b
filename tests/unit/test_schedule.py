"""Schedules of parties in lanes: none is left out, none overlap, the longest never waits."""

import numpy as np
import pytest

from moonfed.core.seeds import generator
from moonfed.engines.stacked.schedule import MAX_CHUNK_STEPS, make_schedule, pick_chunk, pick_width

CASES = [[5], [1, 1, 1], [90, 47, 93, 12, 60, 31, 17, 88, 40, 20], [1390, 5, 800, 790, 1000, 600, 900, 300, 1200, 775]]


@pytest.mark.parametrize("lengths", CASES)
@pytest.mark.parametrize("width", [1, 2, 3, 7, 10])
@pytest.mark.parametrize("chunk", [1, 5, 16])
def test_every_step_of_every_job_is_taken_once_in_order_and_no_two_share_a_place(lengths, width, chunk):
    order = make_schedule(lengths, width, chunk)
    taken = np.zeros((order.width, order.steps), dtype=int)
    when: dict[int, list[int]] = {job: [-1] * n for job, n in enumerate(lengths)}
    for job, lane, first, begin, steps in order.assignments:
        assert first % chunk == 0
        assert steps > 0
        taken[lane, first : first + steps] += 1
        when[job][begin : begin + steps] = range(first, first + steps)
    assert taken.max() == 1
    assert taken.sum() == sum(lengths)
    for times in when.values():
        assert times == sorted(set(times))
        assert times[0] >= 0
    assert order.width <= width
    padded = [-(-n // chunk) for n in lengths]
    assert order.steps == chunk * max(*padded, -(-sum(padded) // width), padded[0]), "nobody could end sooner"


def test_lanes_still_in_use_are_always_a_prefix():
    lengths = generator(0, "lengths", 0, 0).integers(1, 200, size=40).tolist()
    order = make_schedule(lengths, 7, 4)
    ends = [max(a.lane_step + a.steps for a in order.assignments if a.lane == lane) for lane in range(order.width)]
    chunks = [-(-end // order.chunk) for end in ends]
    assert chunks == sorted(chunks, reverse=True)


def test_ten_jobs_of_one_length_take_ten_lanes_where_lanes_are_cheap_and_none_is_idle():
    assert pick_width([100] * 10, 16, 1000, 10.0) == 10


def test_short_jobs_share_lanes_so_that_the_longest_sets_the_pace():
    lengths = [1000, 500, 500, 250, 250, 250, 250]
    width = pick_width(lengths, 10, 1000, 10.0)
    assert width == 3
    assert make_schedule(lengths, width, 10).steps == 1000


def test_no_more_lanes_than_there_is_room_for():
    assert pick_width([100] * 10, 16, 4, 10.0) <= 4
    assert pick_width([100], 16, 4, 10.0) == 1


def test_jobs_of_one_short_length_make_one_chunk_and_waste_no_step():
    assert pick_chunk([5] * 50) == 5
    assert pick_chunk([776] * 10) in range(8, MAX_CHUNK_STEPS + 1)
    assert make_schedule([5] * 50, 50, 5).steps == 5
