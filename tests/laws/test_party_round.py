"""What is done for the parties of a round beside their steps is done for all of them at once."""

from collections import Counter
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from worlds import ready, settings

from moonfed.core.tree import tree_map
from moonfed.engines.base import Job
from moonfed.engines.local_optimizer import SGD
from moonfed.engines.party_round import conclude, prepare
from moonfed.engines.stacked.lanes import LaneState, fill_lanes
from moonfed.training.runner import make_jobs


class Operations(TorchDispatchMode):
    """Counts the operations that reach torch's kernels; views reach none."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        views = any(output.alias_info and not output.alias_info.is_write for output in func._schema.returns)
        self.counts[func._schema.name] += not views
        return func(*args, **(kwargs or {}))

    @property
    def total(self) -> int:
        """All of them."""
        return self.counts.total()


def jobs_of(algorithm: str, parties: int) -> list[Job]:
    context, (trial,) = ready(settings(algorithm, data__parties=parties))
    return make_jobs(trial, context)


@pytest.mark.parametrize(("algorithm", "in_finish"), [("fedavg", 0), ("fedprox", 0), ("moon", 2)])
def test_parties_are_prepared_loaded_and_concluded_together_however_many_they_are(algorithm, in_finish):
    counts: list[tuple[int, int, int]] = []
    for parties in (2, 6):
        jobs = jobs_of(algorithm, parties)
        with Operations() as preparing:
            states = [LaneState(*prepared) for prepared in prepare(jobs)]
        lanes = tree_map(lambda t, parties=parties: t.new_zeros(parties, *t.shape), states[0])
        with Operations() as loading:
            fill_lanes(lanes, dict(enumerate(states)))
        with Operations() as concluding:
            losses = {"supervised": torch.zeros(1)}
            ends, fixed = [state.carry for state in states], [state.fixed for state in states]
            conclude(jobs, ends, fixed, [losses] * parties, [None] * parties)
        counts.append((preparing.total, loading.total, concluding.total))
    few, many = counts
    assert few[:2] == many[:2]
    assert many[2] - few[2] == in_finish * 4, "what a rule computes when a party's round ends, by itself"
    assert min(few) > 0


@pytest.mark.parametrize("lanes", [[0, 1, 2], [1, 2], [0, 2], [2]])
def test_lanes_hold_what_was_loaded_and_the_others_what_they_held(lanes):
    jobs = jobs_of("moon", 3)
    states = [LaneState(*prepared) for prepared in prepare(jobs)]
    numbered = [tree_map(lambda t, i=i: t + i, state) for i, state in enumerate(states)]  # no two share a tensor
    held = tree_map(lambda t: torch.full((3, *t.shape), 7, dtype=t.dtype), states[0])
    for one_by_one in (states, numbered):
        into = tree_map(torch.clone, held)
        fill_lanes(into, {lane: one_by_one[lane] for lane in lanes})
        for lane in range(3):
            wanted = one_by_one[lane] if lane in lanes else tree_map(lambda t: t[0], held)  # in all lanes the same
            tree_map(
                lambda t, own, lane=lane: t if torch.equal(t[lane], own) else pytest.fail("other bits"), into, wanted
            )


def test_parties_keep_settings_counts_and_rounds_of_their_own():
    jobs = jobs_of("fedprox", 3)
    for job, (carry, fixed, _) in zip(jobs, prepare(jobs), strict=True):
        assert float(fixed.optim.lr) == pytest.approx(job.lr)
        assert float(fixed.party.rows) == job.info.rows
        assert fixed.party.class_counts.tolist() == list(job.info.class_counts)
        assert (int(fixed.round), int(fixed.steps)) == (job.round, len(job.plan.rows))
        assert {k: float(v) for k, v in fixed.floats.items()} == pytest.approx(job.local.float_settings)
        assert set(carry.optimizer) == set(SGD.slots)
