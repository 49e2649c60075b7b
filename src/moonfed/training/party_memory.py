"""What the parties of a trial remember between rounds, whoever keeps it."""

from collections.abc import ItemsView, Iterator, ValuesView
from typing import Protocol

from moonfed.core.types import Slots


class PartyMemory(Protocol):
    """What parties remember, by party; adding to it makes a new one. In RAM it is a dictionary."""

    def __getitem__(self, party: int, /) -> Slots: ...
    def __contains__(self, party: object, /) -> bool: ...
    def __iter__(self) -> Iterator[int]: ...
    def __len__(self) -> int: ...
    def __or__(self, new: dict[int, Slots], /) -> "PartyMemory": ...

    def get(self, party: int, default: Slots, /) -> Slots:
        """Return what a party remembers, or the default before its first round."""
        ...

    def items(self) -> ItemsView[int, Slots]:
        """List parties with what they remember."""
        ...

    def values(self) -> ValuesView[Slots]:
        """List what they remember."""
        ...
