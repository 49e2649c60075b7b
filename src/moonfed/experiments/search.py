"""Which settings a search tries with which seeds: all with all if the budget is enough, else half is dropped a time.

The seeds that pick the two finalists are not the seeds that compare them, so that the interval of their difference
owes nothing to the picking. Every trial is as long as a run: a search by short runs would favour what starts fast.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from moonfed.core.errors import UserError
from moonfed.core.seeds import generator
from moonfed.experiments.statistics import Interval, interval, paired

FINALISTS = 2
Results = dict[int, dict[int, float | None]]  # setting to seed to held-out accuracy; None where the run failed


class Stage(NamedTuple):
    """Some settings that are tried with some seeds."""

    settings: list[int]
    seeds: list[int]
    final: bool


class Plan(NamedTuple):
    """What a budget of trials is enough for."""

    tried: list[int]  # settings
    seeds: list[int]  # of the last comparison
    picking: list[int]  # seeds of the stages before it, a stage each; none if every setting is tried with every seed
    widths: list[int]  # settings in each stage
    trials: int


class Choice(NamedTuple):
    """The best setting, the runner-up, and how much better it is over the seeds of the last comparison."""

    best: int
    other: int | None
    gap: Interval | None

    @property
    def told_apart(self) -> bool:
        """Whether the interval of the difference leaves 0 out."""
        return self.gap is not None and self.gap.low is not None and self.gap.low > 0 and not self.alike

    @property
    def alike(self) -> bool:
        """Whether two seeds happened to give one difference, as may be where rows are few: no width to go by."""
        return self.gap is not None and self.gap.n == 2 and self.gap.low == self.gap.high


def plan_search(settings: int, seeds: Sequence[int], budget: int, usual: int = 0) -> Plan:
    """Lay a budget of trials out over settings and seeds; the usual setting is tried whatever is drawn."""
    if settings * len(seeds) <= budget:
        return Plan(list(range(settings)), list(seeds), [], [settings], settings * len(seeds))
    last = FINALISTS * len(seeds)
    width = max((w for w in range(FINALISTS + 1, settings + 1) if last + sum(_halved(w)) <= budget), default=0)
    if not width:
        least = last + sum(_halved(FINALISTS + 1))
        raise UserError(
            f"a budget of {budget} trials is too small: two finalists with {len(seeds)} seeds each take {last}, and "
            f"picking them at least {least - last}; use --budget {least} or more, or fewer --seeds"
        )
    drawn = [usual, *(int(i) for i in generator(seeds[0], "tune").permutation(settings) if i != usual)][:width]
    widths = _halved(width)
    picking = [max(seeds) + 1 + i for i in range(len(widths))]
    return Plan(sorted(drawn), list(seeds), picking, [*widths, FINALISTS], last + sum(widths))


def _halved(width: int) -> list[int]:
    """Count the settings of each stage before the last: half of the one before, as long as it is more than two."""
    return [] if width <= FINALISTS else [width, *_halved((width + 1) // 2)]


def stages(plan: Plan, results: Callable[[], Results]) -> Iterator[Stage]:
    """Go through a plan's stages; the results of each are asked for before the next."""
    alive = plan.tried
    for at, seed in enumerate(plan.picking):
        yield Stage(alive, [seed], final=False)
        found = results()
        order = sorted(alive, key=lambda s: -_mean(found[s], plan.picking[: at + 1]))  # ties: as typed
        alive = sorted(order[: plan.widths[at + 1]])
    yield Stage(alive, plan.seeds, final=True)


def choose(plan: Plan, results: Results) -> Choice | None:
    """Choose the best of the settings that have every seed of the last comparison; None if every one failed."""
    whole = {s: _scores(results[s], plan.seeds) for s in results if set(plan.seeds) <= set(results[s])}
    order = sorted((s for s, scores in whole.items() if scores is not None), key=lambda s: -_mean(whole[s] or {}))
    if not order:
        return None
    best, other = order[0], order[1] if len(order) > 1 else None
    return Choice(best, other, None if other is None else paired(whole[best] or {}, whole[other] or {}))


def estimate(plan: Plan, found: Mapping[int, float | None]) -> Interval | None:
    """The mean of a setting with its interval: over the last seeds if it came so far, else over those it has."""
    seeds = plan.seeds if set(plan.seeds) <= set(found) else plan.picking
    scores = [value for seed, value in found.items() if seed in seeds and value is not None]
    return interval(scores) if scores else None


def _scores(found: Mapping[int, float | None], seeds: Sequence[int]) -> dict[int, float] | None:
    """The accuracy of each seed; None if one of the runs failed."""
    scores = {seed: value for seed in seeds if (value := found[seed]) is not None}
    return scores if len(scores) == len(seeds) else None


def _mean(found: Mapping[int, float | None], seeds: Sequence[int] | None = None) -> float:
    """The mean over some seeds; a setting with a failed run comes last."""
    scores = _scores(found, list(found) if seeds is None else seeds)
    return sum(scores.values()) / len(scores) if scores else float("-inf")
