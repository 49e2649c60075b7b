"""Who takes part in a round, with what share, and how much of the work gets done."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from moonfed.core.seeds import generator, published_python
from moonfed.core.types import PartyInfo
from moonfed.training.config import Config, straggler_range


class Participant(NamedTuple):
    """A party's place in a cohort."""

    party: int
    share: float  # aggregation weight; the server divides by the sum over the cohort
    work: float  # share of its steps that the party gets done


class Cohorts:
    """The cohorts of a trial, by round."""

    def __init__(self, config: Config, facts: Sequence[PartyInfo]) -> None:
        self.settings, self.seed, self.facts = config.cohort, config.run.seed, facts
        self.work = straggler_range(config)
        self.size = max(int(config.cohort.fraction * len(facts) + 1e-9), 1)  # m = max(C K, 1)
        self.stream, self.drawn = published_python(self.seed), list[list[int]]()

    def seats(self, round: int) -> list[Participant]:
        """List the seats of a round, by party."""
        seats = self._by_rows(round) if self.settings.sampling == "by-rows" else self._uniform(round)
        return self._delayed(round, sorted(seats))

    def _uniform(self, round: int) -> list[Participant]:
        everyone = range(len(self.facts))
        if self.size == len(self.facts):
            return [self._seat(party) for party in everyone]
        # As published: one stream for the whole run, a sample without replacement a round.
        while len(self.drawn) <= round:
            self.drawn.append(self.stream.sample(everyone, self.size))
        return [self._seat(party) for party in self.drawn[round]]

    def _seat(self, party: int) -> Participant:
        return Participant(party, float(self.facts[party].rows), 1.0)

    def _by_rows(self, round: int) -> list[Participant]:
        # Algorithm 3 of Shi: K draws with probability p_k, then 1/K each; a party drawn twice counts twice.
        rows = [fact.rows for fact in self.facts]
        p = [n / sum(rows) for n in rows]
        draws = generator(self.seed, "cohort", round).choice(len(rows), size=self.size, replace=True, p=p)
        return [Participant(party, float(times), 1.0) for party, times in Counter(draws.tolist()).items()]

    def _delayed(self, round: int, seats: list[Participant]) -> list[Participant]:
        slow = int(self.settings.stragglers * len(seats) + 0.5)
        if not slow:
            return seats
        rng = generator(self.seed, "stragglers", round)
        chosen = {int(i) for i in rng.permutation(len(seats))[:slow]}
        work = rng.uniform(*self.work, size=len(seats))
        if not self.settings.stragglers_keep:
            return [seat for i, seat in enumerate(seats) if i not in chosen]
        return [seat._replace(work=float(work[i])) if i in chosen else seat for i, seat in enumerate(seats)]
