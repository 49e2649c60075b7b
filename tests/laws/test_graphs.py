"""Graphs of parties: their edges, their weights, and what mixing leaves as it is."""

import math

import numpy as np
import pytest
import torch
from worlds import gap, same_bits, settings, some_digits

from moonfed.aggregators.gossip import GossipAggregator, GossipOptimizer
from moonfed.core.errors import UserError
from moonfed.core.topology import is_connected, make_edges, metropolis, neighbours_of
from moonfed.core.tree import norm, sub
from moonfed.core.types import PartyInfo, Population, ReceivedUpload, Snapshot, State, Upload
from moonfed.training.setup import set_up
from moonfed.training.topology_file import read_edges, warn_of_parts, with_edges

GRAPHS = [
    *(("ring", n) for n in (1, 2, 3, 4, 10)),
    *(("torus", n) for n in (4, 6, 9, 16)),
    *(("complete", n) for n in (1, 2, 5)),
    *(("random:2", n) for n in (3, 9)),
    *(("random:3", n) for n in (4, 10)),
    ("random:4", 9),
    ("random:9", 10),
    ("random:1", 2),
    ("0-1", 2),
    ("0-1 1-2 1-3", 4),
    ("0-1", 4),
]


def matrix(topology, parties, seed=0):
    """W, as a matrix."""
    mixing = metropolis(make_edges(topology, parties, seed), range(parties))
    weights = np.zeros((parties, parties))
    np.add.at(weights, (np.arange(parties)[:, None], mixing.members), mixing.weight)
    return weights


@pytest.mark.parametrize(("topology", "parties"), GRAPHS)
def test_the_weights_of_every_graph_are_symmetric_and_doubly_stochastic(topology, parties):
    weights = matrix(topology, parties)
    assert np.allclose(weights, weights.T, atol=1e-15)
    assert np.allclose(weights.sum(0), 1, atol=1e-15)
    assert weights.min() >= 0
    edges = {(i, j) for i in range(parties) for j in range(i + 1, parties) if weights[i, j]}
    assert edges == make_edges(topology, parties)


@pytest.mark.parametrize("parties", [3, 5, 10, 16])
def test_a_ring_has_weights_of_a_third_and_the_second_eigenvalue_of_the_formula(parties):
    weights = matrix("ring", parties)
    assert np.allclose(weights[weights > 0], 1 / 3)
    second = np.sort(np.linalg.eigvalsh(weights))[-2]
    assert second == pytest.approx((1 + 2 * math.cos(2 * math.pi / parties)) / 3)
    assert parties != 10 or second == pytest.approx(0.8727, abs=1e-4)


def test_two_parties_average_and_a_complete_graph_has_equal_weights():
    assert np.allclose(matrix("0-1", 2), 0.5)
    assert np.allclose(matrix("ring", 2), 0.5)
    assert np.allclose(matrix("complete", 7), 1 / 7)


def test_metropolis_weights_by_hand():
    """A star of four: the centre has degree 3, so every edge weighs 1/4 and a leaf keeps 3/4."""
    assert np.allclose(matrix("0-1 0-2 0-3", 4)[0], 0.25)
    assert np.allclose(np.diag(matrix("0-1 0-2 0-3", 4)), [0.25, 0.75, 0.75, 0.75])


def test_absent_parties_leave_the_graph_that_is_left_over():
    """A ring of four without party 1 is a path 2 - 3 - 0: weights 1/3 along it, and 2/3 stay at its ends."""
    mixing = metropolis(make_edges("ring", 4), [0, 2, 3])
    dense = np.zeros((3, 3))
    np.add.at(dense, (np.arange(3)[:, None], mixing.members), mixing.weight)
    assert np.allclose(dense, [[2 / 3, 0, 1 / 3], [0, 2 / 3, 1 / 3], [1 / 3, 1 / 3, 1 / 3]])


@pytest.mark.parametrize(("parties", "degree"), [(4, 2), (6, 3), (8, 3), (9, 4), (12, 4), (16, 4)])
def test_a_torus_is_connected_and_regular_of_the_sides_nearest_to_a_square(parties, degree):
    edges = make_edges("torus", parties)
    assert {len(others) for others in neighbours_of(edges, range(parties)).values()} == {degree}
    assert is_connected(edges, parties)
    assert neighbours_of(make_edges("torus", 16), range(16))[5] == [1, 4, 6, 9], "four by four"


@pytest.mark.parametrize(("degree", "parties"), [(2, 20), (3, 20), (4, 21), (6, 40), (19, 20)])
def test_a_random_graph_is_regular_connected_and_that_of_its_seed(degree, parties):
    edges = make_edges(f"random:{degree}", parties, 7)
    assert {len(others) for others in neighbours_of(edges, range(parties)).values()} == {degree}
    assert is_connected(edges, parties)
    make_edges.cache_clear()
    assert make_edges(f"random:{degree}", parties, 7) == edges
    others = [make_edges(f"random:{degree}", parties, 8), make_edges(f"random:{degree}", parties, 7, 1)]
    assert all((other == edges) == (degree == parties - 1) for other in others)


@pytest.mark.parametrize(
    ("topology", "parties", "words"),
    [
        ("torus", 7, "7 parties make one row; use --topology ring, or another number of parties, for example 8"),
        ("random:3", 7, "an even product of both, got random:3 with 7 parties"),
        ("random:8", 8, "needs 2 <= K < parties"),
        ("random:1", 4, "needs 2 <= K < parties"),
        ("random:0", 4, "needs 2 <= K < parties"),
        ("random:0", 2, "needs 2 <= K < parties"),
        ("0-4", 4, "names party 4, the parties are 0 to 3"),
        ("1-1", 4, "connects party 1 with itself"),
        ("star", 4, "needs ring, torus, complete, random:K, a CSV file of edges or .*, got 'star'"),
    ],
)
def test_a_graph_that_cannot_be_is_refused(topology, parties, words):
    with pytest.raises(UserError, match=words):
        make_edges(topology, parties)


def uploads(state, rule, parties, moves):
    """Let parties upload a move from the model that each was sent, and their buffers as they are."""
    received = {}
    for party in parties:
        info = PartyInfo(party, 1, (1,))
        sent = rule.send(state, info).model
        delta = {k: moves(party, v) for k, v in sent.weights.items()}
        received[party] = ReceivedUpload(Upload(delta, sent.buffers, {}, 1, 1.0), 1.0, info)
    return received


def mixed_state(rule, parties, rounds=1, moves=lambda party, w: torch.zeros_like(w), present=None, state=None):
    """Let parties mix some times; the first time every party moves to a model of its own."""
    model = Snapshot({"a": torch.zeros(3, 2).double(), "b": torch.ones(1).double()}, {"n": torch.tensor(4)})
    population, optimizer = Population(parties, parties), GossipOptimizer()
    state = state or State(model, {}, optimizer.init(model))
    for _ in range(rounds):
        received = uploads(state, rule, present or range(parties), moves)
        state = optimizer.step(state, rule.reduce(state, received, population))
    return state


def scattered(party, w):
    return torch.linspace(-1, 1, w.numel(), dtype=w.dtype).view(w.shape) * (party + 1) ** 2


def distance(rule, state):
    away = [float(norm(sub(model.weights, state.model.weights))) for model in rule.party_models(state).values()]
    return math.sqrt(sum(d**2 for d in away) / len(away))


@pytest.mark.parametrize(("topology", "parties"), [("ring", 10), ("torus", 16), ("random:3", 8), ("0-1 1-2 1-3", 4)])
def test_mixing_keeps_the_mean_and_shrinks_the_distance_at_least_by_the_second_eigenvalue(topology, parties):
    rule = GossipAggregator(topology=topology)
    before = mixed_state(rule, parties, moves=scattered)
    second = np.sort(np.abs(np.linalg.eigvalsh(matrix(topology, parties))))[-2]
    for _ in range(5):
        after = mixed_state(rule, parties, state=before)
        assert gap(before.model, after.model) < 1e-12
        assert 0 < distance(rule, after) <= second * distance(rule, before) + 1e-12
        before = after


def test_an_absent_party_keeps_its_model_and_the_others_mix_among_themselves():
    rule = GossipAggregator(topology="ring")
    before = mixed_state(rule, 5, moves=scattered)
    after = mixed_state(rule, 5, state=before, present=[0, 2, 3], moves=scattered)
    old, new = rule.party_models(before), rule.party_models(after)
    assert all(same_bits(old[party], new[party]) for party in (1, 4))
    mean = torch.stack([model.weights["a"] for model in new.values()]).mean(0)
    assert torch.allclose(after.model.weights["a"], mean), "the consensus model is the mean of all, present or not"
    moved = [old[party].weights["a"] + scattered(party, old[party].weights["a"]) for party in (2, 3)]
    assert torch.allclose(new[2].weights["a"], (moved[0] + moved[1]) / 2), "2 and 3 are the two ends of an edge"
    assert torch.allclose(new[0].weights["a"], old[0].weights["a"] + scattered(0, old[0].weights["a"]))


def test_parties_without_edges_train_alone():
    rule = GossipAggregator(topology="0-1")
    state = mixed_state(rule, 4, rounds=3, moves=scattered)
    for party in (2, 3):
        alone = 3 * scattered(party, torch.zeros(3, 2).double())
        assert torch.allclose(rule.party_models(state)[party].weights["a"], alone)


def test_whole_numbers_among_the_buffers_are_mixed_and_rounded():
    rule, population = GossipAggregator(topology="0-1"), Population(2, 2)
    model = Snapshot({"w": torch.zeros(1)}, {"n": torch.tensor(0), "mean": torch.zeros(1)})
    state = State(model, {}, GossipOptimizer().init(model))
    received = {
        party: ReceivedUpload(
            Upload({"w": torch.zeros(1)}, {"n": torch.tensor(n), "mean": torch.tensor([float(n)])}, {}, 1, 1.0),
            1.0,
            PartyInfo(party, 1, (1,)),
        )
        for party, n in enumerate((3, 10))
    }
    after = GossipOptimizer().step(state, rule.reduce(state, received, population))
    assert after.model.buffers["n"].dtype == torch.int64
    assert int(after.model.buffers["n"]) == 6
    assert float(rule.party_models(after)[0].buffers["mean"]) == 6.5


def test_a_graph_drawn_every_round_is_another_every_round_and_one_drawn_once_is_not():
    moving = GossipAggregator(topology="random:3", topology_changes="every-round")
    resting = GossipAggregator(topology="random:3")
    for rule, graphs in ((moving, 4), (resting, 1)):
        states = [mixed_state(rule, 12, rounds=k) for k in range(4)]
        assert len({rule.edges(state, Population(12, 12, 5)) for state in states}) == graphs


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0,1\n1,4\n", "line 2, names party '4', the parties are 0 to 3, or by name a, b, c, d"),
        ("0,1,2\n", "line 1, needs two parties, got 3"),
        ("0,1\nx,b\n", "line 2, names party 'x'"),
        ("b,b\n", "connects party 1 with itself"),
        ("\n\n", "has no edges"),
        ('"0,1\n', "is not a CSV file of edges"),
    ],
)
def test_a_file_that_is_no_graph_is_refused_in_one_line(tmp_path, text, words):
    (tmp_path / "edges.csv").write_text(text)
    with pytest.raises(UserError, match=words):
        read_edges(tmp_path / "edges.csv", 4, ("a", "b", "c", "d"))


def test_edges_are_read_by_number_and_by_name_and_a_graph_that_is_not_connected_is_reported(tmp_path, caplog):
    path = tmp_path / "edges.csv"
    path.write_text("a,b\n1, 0\n\nc,b\n")
    assert read_edges(path, 4, ("a", "b", "c", "d")) == {(0, 1), (1, 2)}
    for topology in (str(path), "1-0 2-1", "0-1   1-2"):
        config = settings("fedavg", algorithm__topology=topology)
        assert with_edges(config, 3, ("a", "b", "c")).algorithm.options["topology"] == "0-1 1-2"
    whole, parts = (settings("fedavg", algorithm__topology="0-1 1-2", data__parties=n) for n in (3, 4))
    warn_of_parts([whole])
    assert not caplog.messages
    set_up([parts, parts.model_copy(update={"run": parts.run.model_copy(update={"seed": 1})})], data=some_digits())
    (said,) = caplog.messages
    assert said.startswith("the graph 0-1 1-2 is not connected"), "once, however many trials have it"
