"""A graph of parties from a file of edges, as CSV: two party numbers, or names, per line.

The edges take the place of the file's name in a run's settings, so that a run is complete without the file and no site
of a federation reads it.
"""

import csv
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeAlias, TypeVar

from moonfed.core.errors import UserError, nearest
from moonfed.core.files import short
from moonfed.core.regular_file import regular_size
from moonfed.core.topology import (
    EDGE_LIST,
    GRAPH_KINDS,
    GRAPH_NAMES,
    NAMED_GRAPHS,
    Edges,
    check_pairs,
    is_connected,
    is_random,
    make_edges,
    not_a_graph,
)
from moonfed.training.config import Config
from moonfed.training.settings import AlgorithmSettings

logger = logging.getLogger(__name__)
MAX_FILE_BYTES = 10_000_000
MAX_SHOWN_CHARS = 60  # of a list of edges
SETTING = "topology"
C = TypeVar("C", bound=Config)
EdgeReader: TypeAlias = Callable[[Path, int, tuple[str, ...]], Edges]


def read_edges(path: Path, parties: int, names: tuple[str, ...] = ()) -> Edges:
    """Read and check a file of edges; an edge that occurs twice counts once."""
    try:
        size = regular_size(path)
        if size > MAX_FILE_BYTES:
            raise UserError(f"{path} has {size:,} bytes, a file of edges has at most {MAX_FILE_BYTES:,}")
        lines = list(csv.reader(path.read_text(encoding="utf-8-sig").splitlines(), strict=True))
    except OSError as error:
        near = nearest(str(path), NAMED_GRAPHS)
        advice = f"did you mean {near}?" if near else f"set it with --{SETTING}"
        got = f"got {str(path)!r}, which cannot be read: {short(error)}"
        raise UserError(f"algorithm.{SETTING} needs {GRAPH_KINDS}, {got}; {advice}") from None
    except (ValueError, csv.Error) as error:
        raise UserError(f"{path} is not a CSV file of edges: {short(error)}; write two parties per line") from None
    pairs = [
        _pair([word.strip() for word in line], f"{path}, line {number},", parties, names)
        for number, line in enumerate(lines, start=1)
        if any(word.strip() for word in line)
    ]
    if not pairs:
        raise UserError(f"{path} has no edges; write two parties per line, or use solo for parties that train alone")
    return check_pairs(pairs, parties, str(path))


def with_edges(config: C, parties: int, names: tuple[str, ...], read: EdgeReader = read_edges) -> C:
    """Put the edges of a file in the place of its name, where the settings name one."""
    settings, options = config.algorithm, config.algorithm.options
    topology = options.get(SETTING)
    if topology is None or re.fullmatch(GRAPH_NAMES, topology):
        return config
    listed = re.fullmatch(EDGE_LIST, topology)
    if not topology or is_random(topology):
        raise not_a_graph(topology)
    edges = make_edges(topology, parties) if listed else read(Path(topology), parties, names)
    text = " ".join(f"{i}-{j}" for i, j in sorted(edges))
    algorithm = AlgorithmSettings(name=settings.name, server=settings.server, **options | {SETTING: text})
    return config.model_copy(update={"algorithm": algorithm})


def warn_of_parts(configs: Iterable[Config]) -> None:
    """Say which graphs of edges are not connected, each once."""
    graphs = {(c.algorithm.options.get(SETTING, ""), c.data.parties): None for c in configs}
    for text, parties in graphs:
        if re.fullmatch(EDGE_LIST, text) and not is_connected(make_edges(text, parties), parties):
            shown = text if len(text) <= MAX_SHOWN_CHARS else text[:MAX_SHOWN_CHARS] + " ..."
            logger.warning("the graph %s is not connected: its parts learn nothing from each other", shown)


def _pair(words: list[str], where: str, parties: int, names: Sequence[str]) -> tuple[int, int]:
    if len(words) != 2:
        raise UserError(f"{where} needs two parties, got {len(words)}; write one edge per line, such as 0,1")
    first, second = (_number(word, where, parties, names) for word in words)
    return first, second


def _number(word: str, where: str, parties: int, names: Sequence[str]) -> int:
    if word in names:
        return names.index(word)
    if word.isdecimal() and len(word) < 10 and int(word) < parties:
        return int(word)
    known = f"0 to {parties - 1}"
    if names:
        known += f", or by name {', '.join(names[:5])}" + (", ..." if len(names) > 5 else "")
    advice = "correct it, or omit this line if it is a header" if where.endswith("line 1,") else "correct it"
    raise UserError(f"{where} names party {word[:60]!r}, the parties are {known}; {advice}")
