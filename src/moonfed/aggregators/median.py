"""The coordinate-wise median (Yin et al. 2018): a minority cannot move an entry beyond the other parties' values."""

from dataclasses import dataclass

from moonfed.aggregators.trimmed_mean import trimmed
from moonfed.core.algorithm import Preset
from moonfed.core.rules import Aggregator
from moonfed.core.types import Population, ReceivedUpload, State, Update


@dataclass(frozen=True)
class MedianAggregator(Aggregator):
    """Per entry, the middle value, or the mean of the two middle ones; each party counts once, buffers alike."""

    linear = False

    def reduce(self, state: State, received: dict[int, ReceivedUpload], population: Population) -> Update:
        return trimmed(received, (len(received) - 1) // 2)


PRESET = Preset("median", aggregator=MedianAggregator)
