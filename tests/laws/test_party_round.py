"""What is done for the parties of a round beside their steps is done for all of them at once."""

import logging
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from worlds import gap, ready, run, same_bits, settings

from moonfed.core.rules import LocalRule
from moonfed.core.tree import tree_map
from moonfed.core.types import InitModel, PartyInfo, Slots, Snapshot, State, StepContext, Trained, as_tensor
from moonfed.engines import ENGINES, EngineOptions
from moonfed.engines.base import Job
from moonfed.engines.local_optimizer import SGD
from moonfed.engines.party_round import conclude, prepare
from moonfed.engines.stacked.lanes import LaneState, fill_lanes
from moonfed.training.runner import make_jobs
from moonfed.training.trial import Trial


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
            assert same_bits(tree_map(lambda t, lane=lane: t[lane], into), wanted)


@dataclass(frozen=True)
class CountsInFloats(LocalRule):
    """Remembers a whole number at first, and a fraction from its first round on."""

    def init_memory(self, state: State, info: PartyInfo, init_model: InitModel) -> Slots:
        return {"seen": torch.tensor(0)}

    def finish(self, trained: Trained, ctx: StepContext) -> tuple[Slots, Slots]:
        return {}, {"seen": as_tensor(ctx.memory, "seen") + ctx.optim.lr}


@dataclass(frozen=True)
class ConstantBias(LocalRule):
    """Sets a weight after every step to the same values in all lanes."""

    def after_step(self, model: Snapshot, ctx: StepContext) -> Snapshot:
        return model._replace(weights=model.weights | {"head.bias": torch.full((10,), 0.5)})


@pytest.mark.parametrize("rule", [CountsInFloats(), ConstantBias()])
def test_a_rule_whose_tensors_change_type_or_are_shared_by_lanes_trains_in_lanes_as_one_by_one(rule, caplog):
    caplog.set_level(logging.INFO, "moonfed")
    ends: list[Trial] = []
    for engine in ("sequential", "stacked"):
        context, (trial,) = ready(settings(data__parties=12, cohort__fraction=0.5, train__rounds=4))
        context = context._replace(engine=ENGINES[engine](context.nets, context.data, EngineOptions(lanes=3)))
        spec = replace(trial.spec, algorithm=replace(trial.algorithm, local=rule))
        (end,), _ = run([replace(trial, spec=spec)], context)
        assert end.failure is None
        ends.append(end)
    assert "one after the other" not in caplog.text
    one_by_one, stacked = ends
    assert gap(one_by_one.state, stacked.state) < 1e-5
    assert gap(dict(sorted(one_by_one.memory.items())), dict(sorted(stacked.memory.items()))) < 1e-5


def test_parties_keep_settings_counts_and_rounds_of_their_own():
    jobs = jobs_of("fedprox", 3)
    for job, (carry, fixed, _) in zip(jobs, prepare(jobs), strict=True):
        assert float(fixed.optim.lr) == pytest.approx(job.lr)
        assert float(fixed.party.rows) == job.info.rows
        assert fixed.party.class_counts.tolist() == list(job.info.class_counts)
        assert (int(fixed.round), int(fixed.steps)) == (job.round, len(job.plan.rows))
        assert {k: float(v) for k, v in fixed.floats.items()} == pytest.approx(job.local.float_settings)
        assert set(carry.optimizer) == set(SGD.slots)
