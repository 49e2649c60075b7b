"""What parties remember: in RAM until it is committed, then in the checkpoint's own files behind a bounded cache."""

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import torch

from moonfed.core.tree import nbytes
from moonfed.core.types import Slots
from moonfed.engines.devices import free_memory, is_gpu

CONTROL_GROUP = Path("/sys/fs/cgroup/memory.max")
CACHE_SHARE = 0.25  # of a device's memory, for what is on disk as well; all trials of a command together


class SavedMemory:
    """What parties remember on disk, and what of it was used most recently in RAM."""

    def __init__(self, parties: Mapping[int, object], read: Callable[[int], Slots], limit: int) -> None:
        self.parties, self.read = parties, read  # who has a file, and how to read the newest one
        self.versions: dict[int, int] = {}  # of the entries that were committed by this process
        self.recent: OrderedDict[int, Slots] = OrderedDict()
        self.bytes, self.limit, self.version = 0, limit, 0

    def get(self, party: int) -> Slots:
        """Return what a party remembers as of the last commit."""
        if party in self.recent:
            self.recent.move_to_end(party)
        else:
            self.keep(party, self.read(party))
        return self.recent[party]

    def keep(self, party: int, slots: Slots) -> None:
        """Hold an entry that is on disk in RAM; those that were used least recently make room."""
        self.drop(party)
        self.recent[party] = slots
        self.bytes += nbytes(slots)
        while self.bytes > self.limit and len(self.recent) > 1:
            self.drop(next(iter(self.recent)))

    def drop(self, party: int) -> None:
        """Leave an entry to the disk."""
        if party in self.recent:
            self.bytes -= nbytes(self.recent.pop(party))


class PartyStore(Mapping[int, Slots]):
    """What the parties of a run remember, by party. Adding to it makes a new store; both share what is on disk."""

    def __init__(self, saved: SavedMemory, fresh: dict[int, tuple[int, Slots]] | None = None) -> None:
        self.saved = saved
        self.fresh = fresh or {}  # with the version of each entry

    def __getitem__(self, party: int) -> Slots:
        if party in self.fresh:
            return self.fresh[party][1]
        if party not in self.saved.parties:
            raise KeyError(party)
        return self.saved.get(party)

    def __iter__(self) -> Iterator[int]:
        return iter(sorted({*self.saved.parties, *self.fresh}))

    def __len__(self) -> int:
        return len(self.saved.parties) + sum(party not in self.saved.parties for party in self.fresh)

    def __contains__(self, party: object) -> bool:
        return party in self.fresh or party in self.saved.parties

    def __or__(self, new: Mapping[int, Slots]) -> "PartyStore":
        """Add what parties remember now; entries that were committed since are left to the disk and its cache."""
        self.saved.version += 1
        version, versions = self.saved.version, self.saved.versions
        kept = {party: entry for party, entry in self.fresh.items() if versions.get(party, 0) < entry[0]}
        return PartyStore(self.saved, kept | {party: (version, slots) for party, slots in new.items()})

    def committed(self, parties: Iterable[int]) -> None:
        """Note that the entries of parties are on disk now."""
        for party in parties:
            version, slots = self.fresh[party]
            self.saved.versions[party] = version
            self.saved.keep(party, slots)


def cache_bytes(device: torch.device, share: float) -> int:
    """Return how much of a device's memory a cache may take that is one of several, by its share."""
    return int(share * CACHE_SHARE * (free_memory(device) if is_gpu(device) else _ram()))


def _ram() -> int:
    """Return the RAM of this machine in bytes, or of the control group where that has less."""
    ram = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        group = CONTROL_GROUP.read_text().strip()
    except OSError:  # not Linux, or the older kind of group
        return ram
    return min(ram, int(group)) if group.isdecimal() else ram
