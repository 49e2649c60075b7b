"""Who takes part in a round, with what share, and how much of the work gets done."""

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from random import Random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from moonfed.core.seeds import generator, published_python
from moonfed.core.types import PartyInfo
from moonfed.data.population import totals_of
from moonfed.training.resolve import ResolvedConfig

REMEMBERED_ROUNDS = 3  # a runner may draw the next round's cohort ahead


class Participant(NamedTuple):
    """One party's participation in a round."""

    party: int
    share: float  # aggregation weight; the server divides by the sum over the cohort
    work: float  # fraction of its steps that the party gets done


Cohort = list[Participant]


class Cohorts:
    """The cohorts of a trial, by round; each is drawn once."""

    def __init__(self, config: ResolvedConfig, infos: Sequence[PartyInfo]) -> None:
        self.settings, self.seed, self.infos = config.cohort, config.run.seed, infos
        low, high = config.cohort.straggler_work.split("-")
        self.work = float(low), float(high)
        self.size = max(int(config.cohort.fraction * len(infos) + 1e-9), 1)  # m = max(C K, 1)
        self.samples: list[list[int]] = []
        self.stream: Random | None = None  # made when a cohort is smaller than the population
        self.batch = config.train.batch
        self.recent: dict[int, Cohort] = {}
        self.recent_batches: dict[int, Counter[int]] = {}

    def cohort(self, round: int) -> Cohort:
        """Return the participants of a round, by party."""
        if round not in self.recent:
            drawn = self._by_rows(round) if self.settings.sampling == "by-rows" else self._uniform(round)
            self.recent[round] = self._with_stragglers(round, sorted(drawn))
            self.recent_batches[round] = Counter(self._batch_of(who.party) for who in self.recent[round])
            for remembered in (self.recent, self.recent_batches):
                remembered.pop(round - REMEMBERED_ROUNDS, None)
        return self.recent[round]

    def peers(self, party: int, round: int) -> int:
        """Count the parties of a round whose batches are as large as a participant's, itself included."""
        self.cohort(round)
        return self.recent_batches[round][self._batch_of(party)]

    def _batch_of(self, party: int) -> int:
        return min(self.batch, self.infos[party].rows)

    def _uniform(self, round: int) -> Cohort:
        everyone = range(len(self.infos))
        if self.size == len(self.infos):
            return [self._participant(party) for party in everyone]
        # As published: one stream for the whole run, one sample without replacement per round.
        self.stream = self.stream or published_python(self.seed)
        while len(self.samples) <= round:
            self.samples.append(self.stream.sample(everyone, self.size))
        return [self._participant(party) for party in self.samples[round]]

    def _participant(self, party: int) -> Participant:
        return Participant(party, float(self.infos[party].rows), 1.0)

    def _by_rows(self, round: int) -> Cohort:
        # Algorithm 3 of Shi: K draws with probability p_k, then 1/K each; a party drawn twice counts twice.
        uniform = generator(self.seed, "cohort", round).random(self.size)
        draws: list[int] = self._cumulative_shares.searchsorted(uniform, side="right").tolist()
        return [Participant(party, float(times), 1.0) for party, times in Counter(draws).items()]

    @cached_property
    def _cumulative_shares(self) -> NDArray[np.float64]:
        """Add up the parties' shares of the rows, [party]; Generator.choice with p would do it in every round."""
        totals = totals_of(self.infos)
        shares: NDArray[np.float64] = np.cumsum(totals.sizes / totals.rows)
        return shares / shares[-1]

    def _with_stragglers(self, round: int, cohort: Cohort) -> Cohort:
        slow = int(self.settings.stragglers * len(cohort) + 0.5)
        if not slow:
            return cohort
        rng = generator(self.seed, "stragglers", round)
        chosen = {int(i) for i in rng.permutation(len(cohort))[:slow]}
        work = rng.uniform(*self.work, size=len(cohort))
        if not self.settings.stragglers_keep:
            return [member for i, member in enumerate(cohort) if i not in chosen]
        return [member._replace(work=float(work[i])) if i in chosen else member for i, member in enumerate(cohort)]
