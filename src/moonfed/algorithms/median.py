"""The coordinate-wise median (Yin et al. 2018): no minority moves an entry beyond what the other parties say."""

from dataclasses import dataclass

from moonfed.algorithms.trimmed_mean import trimmed
from moonfed.core.rules import Server
from moonfed.core.types import Population, State, Upload


@dataclass(frozen=True)
class Median(Server):
    """Entry by entry, the middle value, or the mean of the two in the middle; each party counts once, buffers too."""

    linear = False

    def combine(self, state: State, uploads: dict[int, Upload], population: Population) -> State:
        return trimmed(state, uploads, (len(uploads) - 1) // 2)
