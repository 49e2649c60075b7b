"""Graphs of parties, and the weights with which neighbours average: federated learning without a server.

The Metropolis weights of an edge are W_ij = 1 / (1 + max(deg_i, deg_j)), and W_ii = 1 - sum_j W_ij. W is symmetric and
doubly stochastic, so mixing leaves the mean over the parties unchanged. On a complete graph every weight is 1 / N.
"""

import math
import re
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from moonfed.core.errors import UserError
from moonfed.core.seeds import generator
from moonfed.core.wording import counted

Edges = frozenset[tuple[int, int]]  # each edge once, the smaller number first

NAMED_GRAPHS = ("ring", "torus", "complete")
GRAPH_NAMES = "|".join((*NAMED_GRAPHS, r"random:\d{1,6}"))
EDGE_LIST = r"\d{1,9}-\d{1,9}( +\d{1,9}-\d{1,9})*"  # "0-1 1-2": a file of edges in the settings of a run
GRAPH_KINDS = f"{', '.join(NAMED_GRAPHS)}, random:K, a CSV file of edges or a list of them ('0-1 1-2')"
RANDOM_PREFIX = "random:"
SWAPS_PER_EDGE = 10  # random changes of a regular graph before it is used


class Mixing(NamedTuple):
    """The non-zero weights of every party's row of W; where a party has fewer, zero weights of itself fill up."""

    members: NDArray[np.int64]  # [party, place]: itself and its neighbours, by number
    weight: NDArray[np.float64]  # [party, place]


def is_random(topology: str) -> bool:
    """Whether a graph is drawn."""
    return topology.startswith(RANDOM_PREFIX)


@lru_cache(maxsize=16)
def make_edges(topology: str, parties: int, seed: int = 0, drawing: int = 0) -> Edges:
    """Return the edges of a graph by its name or its list of edges, or refuse it.

    A random one is that of the seed and of the number of its drawing.
    """
    if topology == "ring":
        return _edges((i, (i + 1) % parties) for i in range(parties))
    if topology == "complete":
        return _edges((i, j) for i in range(parties) for j in range(i))
    if topology == "torus":
        return _torus(parties)
    if re.fullmatch(GRAPH_NAMES, topology):
        return _random_regular(parties, int(topology.removeprefix(RANDOM_PREFIX)), generator(seed, "topology", drawing))
    if re.fullmatch(EDGE_LIST, topology):
        return _listed(topology, parties)
    raise not_a_graph(topology)


def not_a_graph(topology: str) -> UserError:
    """Say what a graph is written as."""
    return UserError(f"algorithm.topology needs {GRAPH_KINDS}, got {topology[:60]!r}; set it with --topology")


def is_connected(edges: Edges, parties: int) -> bool:
    """Whether every party can be reached from the first one."""
    neighbours = neighbours_of(edges, range(parties))
    reached, new = {0}, [0]
    while new:
        new = [j for i in new for j in neighbours[i] if j not in reached and not reached.add(j)]
    return len(reached) == parties


def neighbours_of(edges: Edges, parties: Iterable[int]) -> dict[int, list[int]]:
    """List the neighbours of some parties among themselves, by number."""
    found: dict[int, list[int]] = {party: [] for party in parties}
    for i, j in sorted(edges):
        if i in found and j in found:
            found[i].append(j)
            found[j].append(i)
    return {party: sorted(others) for party, others in found.items()}


def metropolis(edges: Edges, present: Sequence[int]) -> Mixing:
    """Return the Metropolis weights of the present parties: those of the graph without the absent ones.

    Parties are numbered by their place in present.
    """
    neighbours, place = neighbours_of(edges, present), {party: i for i, party in enumerate(present)}
    width = 1 + max(map(len, neighbours.values()), default=0)
    index = np.repeat(np.arange(len(present))[:, None], width, axis=1)
    weight = np.zeros((len(present), width))
    for party, others in neighbours.items():
        row = {place[j]: 1 / (1 + max(len(others), len(neighbours[j]))) for j in others}
        row[place[party]] = 1 - math.fsum(row.values())
        for k, j in enumerate(sorted(row)):
            index[place[party], k], weight[place[party], k] = j, row[j]
    return Mixing(index, weight)


def _edges(pairs: Iterable[tuple[int, int]]) -> Edges:
    """Write each edge once; a party is no neighbour of itself."""
    return frozenset((min(pair), max(pair)) for pair in pairs if pair[0] != pair[1])


def _torus(parties: int) -> Edges:
    """Join the cells of a grid, as near to a square as the number of parties allows, and its opposite sides."""
    rows = next(side for side in range(math.isqrt(parties), 0, -1) if parties % side == 0)
    if rows == 1:
        raise UserError(
            f"a torus needs rows and columns, {counted(parties, 'party makes', 'parties make')} one row; use "
            f"--topology ring, or another number of parties, for example {max(4, parties + 1)}"
        )
    columns = parties // rows
    cells = [(row, column) for row in range(rows) for column in range(columns)]
    right = ((r * columns + c, r * columns + (c + 1) % columns) for r, c in cells)
    below = ((r * columns + c, (r + 1) % rows * columns + c) for r, c in cells)
    return _edges([*right, *below])


def _random_regular(parties: int, degree: int, rng: np.random.Generator) -> Edges:
    """Draw a connected graph in which every party has the same number of neighbours.

    A regular graph is changed by exchanging the ends of two random edges, which keeps every degree, until it is random;
    while it is not connected, it is changed further.
    """
    if not (degree < parties and parties * degree % 2 == 0 and (degree > 1 or degree == 1 == parties - 1)):
        advice = "use another K or another number of parties" if parties > 2 else "use --topology complete"
        raise UserError(
            f"--topology random:K needs 2 <= K < parties and an even product of both, got random:{degree} with "
            f"{counted(parties, 'party', 'parties')}; {advice}"
        )
    if degree == 2:  # a connected graph of this kind is a ring
        order = rng.permutation(parties)
        return _edges((int(i), int(j)) for i, j in zip(order, np.roll(order, -1), strict=True))
    steps = [*range(1, degree // 2 + 1), *([parties // 2] if degree % 2 else [])]
    edges = sorted(_edges((i, (i + step) % parties) for i in range(parties) for step in steps))
    known = set(edges)
    while True:
        drawn: list[list[int]] = rng.integers(2 * len(edges), size=(SWAPS_PER_EDGE * len(edges), 2)).tolist()
        for a, b in drawn:
            (i, j), (k, m) = edges[a // 2], edges[b // 2][:: 1 if b % 2 else -1]  # in either direction
            one, other = (min(i, m), max(i, m)), (min(k, j), max(k, j))
            if len({i, j, k, m}) == 4 and not known & {one, other}:
                known.symmetric_difference_update({edges[a // 2], edges[b // 2], one, other})
                edges[a // 2], edges[b // 2] = one, other
        if is_connected(frozenset(edges), parties):
            return frozenset(edges)


def _listed(text: str, parties: int) -> Edges:
    """Read a list of edges and check its numbers."""
    pairs = [tuple(map(int, edge.split("-"))) for edge in text.split()]
    return check_pairs([(first, second) for first, second in pairs], parties)


def check_pairs(pairs: Collection[tuple[int, int]], parties: int, where: str = "the list of edges") -> Edges:
    """Refuse a party that is not there, and an edge from a party to itself; edges that occur twice count once."""
    for pair in pairs:
        if max(pair) >= parties:
            raise UserError(f"{where} names party {max(pair)}, the parties are 0 to {parties - 1}; correct it")
        if pair[0] == pair[1]:
            raise UserError(f"{where} connects party {pair[0]} with itself; an edge needs two parties, omit it")
    return _edges(pairs)
