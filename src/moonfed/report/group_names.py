"""Names of groups of runs: one group in full, several by what differs between them."""

from collections.abc import Sequence
from typing import Any

from moonfed.core.wording import counted, short_value
from moonfed.data.partition import BETA_PARTITIONS

Settings = dict[str, Any]
ORDER = ("dataset", "partition", "beta", "parties", "model", "rounds", "epochs")  # the settings that are named first


def describe(settings: Settings, topology: str | None = None) -> str:
    """Describe a group by its data, split, rounds and network, and the graph of its parties if there is no server."""
    skew = f" (beta {settings['beta']:g})" if settings["partition"] in BETA_PARTITIONS else ""
    parties = counted(settings["parties"], "party", "parties")
    rounds, epochs = counted(settings["rounds"], "round"), counted(settings["epochs"], "local epoch")
    split = f"{settings['partition']} split{skew}"
    graph = "" if topology is None else f", without a server ({short_value(topology)})"
    own = ", personal models on each party's own rows" if settings.get("own_rows") else ""
    return f"{settings['dataset']}: {parties}, {split}, {rounds} of {epochs}, {settings['model']}{graph}{own}"


def distinguishing(groups: Sequence[Settings]) -> list[str]:
    """Choose settings that tell the groups apart, the best known first.

    A setting that follows from those before it is left out: the path of a data set says nothing beside its name.
    """
    chosen: list[str] = []
    classes = 1
    for key in dict.fromkeys([*ORDER, *(key for group in groups for key in group)]):
        found = {tuple(_hashable(group.get(k)) for k in [*chosen, key]) for group in groups}
        if len(found) > classes:
            chosen, classes = [*chosen, key], len(found)
    return chosen


def name_groups(groups: Sequence[Settings]) -> list[str]:
    """Name one group in full, and several by what differs between them."""
    if len(groups) == 1:
        return [describe(groups[0])]
    keys = distinguishing(groups)
    names = [", ".join(_words(key, group) for key in keys if _matters(key, group)) for group in groups]
    if len(set(names)) == len(names):
        return names
    return [", ".join(_words(key, group) for key in keys) for group in groups]  # groups that differ in nothing else


def shared_words(groups: Sequence[Settings]) -> str:
    """Say which of the best-known settings all groups share."""
    same = [key for key in ORDER if len({_hashable(group.get(key)) for group in groups}) == 1]
    return ", ".join(_words(key, groups[0]) for key in same if all(_matters(key, group) for group in groups))


def sort_key(settings: Settings, keys: Sequence[str]) -> tuple[tuple[int, float, str], ...]:
    """Order groups by the values that name them; numbers by size."""
    return tuple(_rank(settings.get(key)) for key in keys)


def _rank(value: Any) -> tuple[int, float, str]:
    number = isinstance(value, int | float)
    return (0 if value is None else 1 if number else 2, float(value) if number else 0.0, str(value))


def _matters(key: str, settings: Settings) -> bool:
    return key != "beta" or settings["partition"] in BETA_PARTITIONS


def _words(key: str, settings: Settings) -> str:
    """Say one setting in a word or two."""
    value: Any = settings.get(key)
    match key:
        case "dataset" | "model":
            return str(value)
        case "partition":
            return f"{value} split"
        case "parties":
            return counted(value, "party", "parties")
        case "rounds":
            return counted(value, "round")
        case "epochs":
            return counted(value, "local epoch")
        case "own_rows":
            return "personal models on own rows" if value else "models on all test rows"
        case _:
            name = key.replace("_", " ")
            number = f"{value:g}" if isinstance(value, float) else str(value)
            return f"{name} {'default' if value is None else number}"


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
