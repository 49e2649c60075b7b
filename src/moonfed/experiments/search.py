"""Plans which settings a search tries with which seeds.

If the budget allows, every setting is tried with every seed; otherwise the worse half is dropped after each stage. The
seeds that select the two finalists are not the seeds that compare them, so the interval of their difference is not
biased by the selection. Every trial runs for all its rounds: short trials would favour settings that start fast.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from moonfed.core.errors import UserError
from moonfed.core.seeds import generator
from moonfed.core.wording import counted
from moonfed.experiments.statistics import BETTER, TWO_EQUAL, Interval, accuracy_interval, paired, verdict

FINALISTS = 2
Results = dict[int, dict[int, float | None]]  # setting to seed to held-out accuracy; None where the run failed


class Stage(NamedTuple):
    """Some settings that are tried with some seeds."""

    settings: list[int]
    seeds: list[int]
    final: bool


class Plan(NamedTuple):
    """The stages that a budget of trials allows."""

    settings: list[int]
    seeds: list[int]  # of the final comparison
    selection_seeds: list[int]  # of the stages before it, one each; empty if every setting is tried with every seed
    stage_sizes: list[int]  # settings in each stage
    trials: int


class Choice(NamedTuple):
    """The best setting, the runner-up, and their paired difference over the seeds of the final comparison."""

    best: int
    runner_up: int | None
    difference: Interval | None

    @property
    def distinguishable(self) -> bool:
        """Whether the interval of the difference excludes 0."""
        return self.difference is not None and verdict(self.difference) == BETTER

    @property
    def degenerate(self) -> bool:
        """Whether two seeds gave the same difference: the interval has no width."""
        return self.difference is not None and verdict(self.difference) == TWO_EQUAL


def plan_search(settings: int, seeds: Sequence[int], budget: int, default: int = 0) -> Plan:
    """Distribute a budget of trials over settings and seeds; the default setting is always among those tried."""
    if settings * len(seeds) <= budget:
        return Plan(list(range(settings)), list(seeds), [], [settings], settings * len(seeds))
    final = FINALISTS * len(seeds)
    width = max((w for w in range(FINALISTS + 1, settings + 1) if final + sum(_halved(w)) <= budget), default=0)
    if not width:
        least = final + sum(_halved(FINALISTS + 1))
        each = counted(len(seeds), "seed")
        raise UserError(
            f"a budget of {counted(budget, 'trial')} is too small: two finalists with {each} each take {final}, and "
            f"selecting them at least {least - final}; use --budget {least} or more, or fewer --seeds"
        )
    sample = [default, *(int(i) for i in generator(seeds[0], "tune").permutation(settings) if i != default)][:width]
    sizes = _halved(width)
    selection = [max(seeds) + 1 + i for i in range(len(sizes))]
    return Plan(sorted(sample), list(seeds), selection, [*sizes, FINALISTS], final + sum(sizes))


def _halved(width: int) -> list[int]:
    """Number of settings in each stage before the final one: half of the previous, while more than two."""
    return [] if width <= FINALISTS else [width, *_halved((width + 1) // 2)]


def stages(plan: Plan, results: Callable[[], Results]) -> Iterator[Stage]:
    """Yield a plan's stages; the results of each are read before the next."""
    remaining = plan.settings
    for at, seed in enumerate(plan.selection_seeds):
        yield Stage(remaining, [seed], final=False)
        found = results()
        order = sorted(remaining, key=lambda s: -_mean(found[s], plan.selection_seeds[: at + 1]))  # ties: as typed
        remaining = sorted(order[: plan.stage_sizes[at + 1]])
    yield Stage(remaining, plan.seeds, final=True)


def choose(plan: Plan, results: Results) -> Choice | None:
    """Choose the best setting among those with every seed of the final comparison; None if all failed."""
    finalists = {s: _scores(results[s], plan.seeds) for s in results if set(plan.seeds) <= set(results[s])}
    order = sorted(
        (s for s, scores in finalists.items() if scores is not None), key=lambda s: -_mean(finalists[s] or {})
    )
    if not order:
        return None
    best, second = order[0], order[1] if len(order) > 1 else None
    return Choice(best, second, None if second is None else paired(finalists[best] or {}, finalists[second] or {}))


def estimate(plan: Plan, found: Mapping[int, float | None]) -> Interval | None:
    """Mean of a setting with its interval: over the final seeds if it got that far, else over those it has."""
    seeds = plan.seeds if set(plan.seeds) <= set(found) else plan.selection_seeds
    scores = [value for seed, value in found.items() if seed in seeds and value is not None]
    return accuracy_interval(scores) if scores else None


def _scores(found: Mapping[int, float | None], seeds: Sequence[int]) -> dict[int, float] | None:
    """Accuracy by seed; None if one of the runs failed."""
    scores = {seed: value for seed in seeds if (value := found[seed]) is not None}
    return scores if len(scores) == len(seeds) else None


def _mean(found: Mapping[int, float | None], seeds: Sequence[int] | None = None) -> float:
    """Mean over some seeds; a setting with a failed run ranks last."""
    scores = _scores(found, list(found) if seeds is None else seeds)
    return statistics.fmean(scores.values()) if scores else float("-inf")  # exact: equal scores tie in any order
