"""Federated learning without a server: runs in which every party has a model and mixes it with its neighbours'."""

import math
from pathlib import Path

import pytest
import torch
from test_ditto import AloneLocal
from worlds import context_for, gap, ready, run, run_one, same_bits, settings, trained

from moonfed.aggregators.gossip import GossipAggregator as Gossip
from moonfed.algorithms.solo import SoloAggregator
from moonfed.core.algorithm import Preset
from moonfed.core.errors import UserError
from moonfed.core.tree import add, norm, scale, sub, tree_map
from moonfed.core.types import as_snapshot
from moonfed.experiments.execute import execute
from moonfed.training.config import make_config
from moonfed.training.registry import ALGORITHMS
from moonfed.training.resolve import resolve
from moonfed.training.runner import make_jobs
from moonfed.training.setup import set_up
from moonfed.training.trial import new_trial

COMPLETE = {"algorithm__topology": "complete"}
EQUAL = {"cohort__sampling": "uniform", "data__partition": "iid"}  # 160 rows, four parties with 40 each


@pytest.mark.parametrize("name", ["fedavg", "moon"])
def test_a_complete_graph_is_fedavg_with_equal_shares(name):
    """To 1e-6 in single precision, with BatchNorm's buffers too."""
    plain, graph = (run_one(settings(name, model__norm="batch", **EQUAL, **more)) for more in ({}, COMPLETE))
    assert gap(plain.state.model.weights, graph.state.model.weights) < 1e-6
    assert gap(plain.state.model, graph.state.model) < 1e-5
    for model in graph.algorithm.aggregator.party_models(graph.state).values():
        assert gap(model, graph.state.model) < 1e-6


@pytest.mark.parametrize("name", ["fedavg", "moon"])
def test_a_complete_graph_is_fedavg_with_equal_shares_in_double_precision(name, float64):
    plain, graph = (run_one(settings(name, **EQUAL, **more)) for more in ({}, COMPLETE))
    assert gap(plain.state.model, graph.state.model) < 1e-12


@pytest.mark.parametrize("name", ["moon", "fedprox", "fedntd", "fedsam", "fedbn"])
@pytest.mark.parametrize("topology", ["ring", "random:2"])
def test_both_engines_give_the_same_graph_of_models(name, topology):
    config = settings(name, algorithm__topology=topology, data__parties=5, model__norm="batch")
    one, two = (run_one(config, engine) for engine in ("sequential", "stacked"))
    assert gap(one.state, two.state) < 1e-5


def test_moons_positive_anchor_and_start_are_the_partys_own_model():
    config = settings("moon", algorithm__topology="ring", train__rounds=2)
    context, (trial,) = ready(config)
    (trial,), _ = run([trial], context)
    models = trial.algorithm.aggregator.party_models(trial.state)
    for job in make_jobs(trial, context):
        assert same_bits(job.state.model, models[job.party])
        assert same_bits(job.local.start(job.state, job.memory), models[job.party])
        assert same_bits(job.local.anchors(job.state, job.memory)["global"], models[job.party])
        stacked = as_snapshot(trial.state.server_state, "models").weights["head.weight"]
        assert job.state.model.weights["head.weight"].data_ptr() == stacked[job.party].data_ptr(), "no copy"


def test_a_round_is_local_training_and_then_the_mean_of_neighbours(float64):
    """x_i = sum_j W_ij z_j with thirds in a ring: what neighbours trained in this round is mixed, too."""
    context, trials = ready(settings("fedavg", algorithm__topology="ring", data__parties=5, train__rounds=2))
    (trial,), _ = run(trials, context)
    jobs = make_jobs(trial, context)
    trained = [
        add(job.state.model.weights, done.upload.delta)
        for job, done in zip(jobs, context.engine.run_cohort(jobs), strict=True)
    ]
    longer = run_one(settings("fedavg", algorithm__topology="ring", data__parties=5, train__rounds=3))
    for i, model in longer.algorithm.aggregator.party_models(longer.state).items():
        mixed = scale(add(add(trained[i - 1], trained[i]), trained[(i + 1) % 5]), 1 / 3)
        assert gap(model.weights, mixed) < 1e-12 < gap(model.weights, trained[i])


def test_without_edges_a_party_trains_alone(float64, monkeypatch):
    monkeypatch.setitem(ALGORITHMS, "alone", Preset("alone", AloneLocal, SoloAggregator))
    alone = run_one(settings("alone", model__norm="batch")).personal_models()
    graph = run_one(settings("fedavg", model__norm="batch", algorithm__topology="0-1"))
    models = graph.algorithm.aggregator.party_models(graph.state)
    assert [gap(models[party], alone[party]) < 1e-12 for party in range(4)] == [False, False, True, True]


def test_sharpness_aware_gossip_with_a_radius_of_zero_is_gossip_to_the_bit():
    """DFedSAM with rho 0 and one mixing per round is DFedAvgM."""
    ring = {"algorithm__topology": "ring", "data__parties": 5}
    plain, sharp, other = (
        run_one(settings(name, **ring, **more))
        for name, more in (("fedavg", {}), ("fedsam", {"algorithm__rho": 0.0}), ("fedsam", {"algorithm__rho": 0.1}))
    )
    assert same_bits(plain.state, sharp.state)
    assert gap(plain.state, other.state) > 1e-4


def test_a_round_records_the_mean_the_worst_the_consensus_and_the_distance():
    config = settings("fedavg", algorithm__topology="ring", data__parties=5, train__lr=0.2)
    (trial,), (rows,) = trained(config)
    last, models = rows[-1], trial.algorithm.aggregator.party_models(trial.state)
    assert len(last["accuracy_by_party"]) == 5
    assert last["accuracy"] == pytest.approx(sum(last["accuracy_by_party"]) / 5)
    assert last["worst_accuracy"] == min(last["accuracy_by_party"])
    assert trial.evaluation is not None
    assert trial.evaluation["accuracy"] == last["consensus_accuracy"], "the consensus model is the one that is kept"
    away = [float(norm(sub(model.weights, trial.state.model.weights))) for model in models.values()]
    assert last["consensus_distance"] == pytest.approx(math.sqrt(sum(d**2 for d in away) / 5))
    mean = tree_map(lambda *parts: torch.stack(parts).mean(0), *(model.weights for model in models.values()))
    assert gap(mean, trial.state.model.weights) < 1e-6
    _, (plain,) = trained(settings("fedavg"))
    assert not {"worst_accuracy", "consensus_accuracy", "consensus_distance"} & set(plain[-1])


def test_with_personal_models_the_worst_party_and_the_distance_of_what_travels_are_recorded():
    (trial,), (rows,) = trained(settings("fedper", algorithm__topology="ring", data__parties=5, train__lr=0.2))
    last, shared = rows[-1], trial.shared_model.weights
    assert last["worst_accuracy"] == min(last["accuracy_by_party"])
    models = trial.algorithm.aggregator.party_models(trial.state).values()
    away = [float(norm({k: model.weights[k] - w for k, w in shared.items()})) for model in models]
    assert last["consensus_distance"] == pytest.approx(math.sqrt(sum(d**2 for d in away) / 5))
    assert last["consensus_distance"] > 0
    assert "consensus_accuracy" not in last, "no model of all parties is complete"


@pytest.mark.parametrize(("topology", "copies"), [("ring", 10), ("complete", 20), ("0-1 1-2", 4)])
def test_every_edge_carries_a_model_in_both_directions(topology, copies):
    config = settings("fedavg", algorithm__topology=topology, data__parties=5, train__rounds=1)
    _, (rows,) = trained(config)
    _, (plain,) = trained(settings("fedavg", data__parties=5, train__rounds=1))
    for key in ("bytes_up", "bytes_down"):
        assert rows[0][key] * 5 == pytest.approx(plain[0][key] * copies, rel=1e-3)  # without a server, no shares


def test_edges_of_absent_parties_carry_nothing():
    config = settings("fedavg", algorithm__topology="complete", cohort__fraction=0.5, train__rounds=1)
    _, (rows,) = trained(config)
    _, (plain,) = trained(settings("fedavg", cohort__fraction=0.5, train__rounds=1))
    assert len(rows[0]["cohort"]) == 2
    assert rows[0]["bytes_up"] == pytest.approx(plain[0]["bytes_up"], rel=1e-3), "two parties, one edge"


def test_the_seed_of_the_trial_draws_the_graph():
    config = [settings("fedavg", algorithm__topology="random:3", data__parties=10, run__seed=k) for k in (0, 0, 1)]
    trials = [ready(one)[1][0] for one in config]
    rules = [trial.algorithm.aggregator for trial in trials]
    drawn = [r.edges(t.state, t.spec.population) for r, t in zip(rules, trials, strict=True) if isinstance(r, Gossip)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_topology_chooses_gossip_and_nothing_that_has_a_server():
    written = [
        {"name": "moon", "topology": "torus"},
        {"name": "moon+gossip", "topology": "torus"},
        {"name": "moon", "server": "gossip", "topology": "torus"},
    ]
    assert len({make_config({"algorithm": values}).identity for values in written}) == 1
    assert make_config({"algorithm": {"name": "gossip"}}).algorithm.options["topology"] == "ring"
    for name in ("scaffold", "feddyn", "fedcm", "fedacg", "fedadam", "fednova", "solo", "moon+adam", "moon+median"):
        with pytest.raises(UserError, match="has rules of its own at the server, --topology ring has no server"):
            make_config({"algorithm": {"name": name, "topology": "ring"}})
    with pytest.raises(UserError, match="centralised has all rows in one place"):
        make_config({"algorithm": {"name": "centralised", "topology": "ring"}})
    for name in ("scaffold", "feddyn", "fedcm", "solo"):
        with pytest.raises(UserError, match=f"{name}\\+gossip does not fit"):
            make_config({"algorithm": {"name": f"{name}+gossip"}})
    with pytest.raises(UserError, match="names two server optimisers, gossip and adam"):
        make_config({"algorithm": {"name": "moon+gossip+adam"}})
    with pytest.raises(UserError, match="names two aggregators, gossip and fednova"):
        make_config({"algorithm": {"name": "moon+gossip+fednova"}})


def test_the_first_round_of_a_ring_trains_as_fedavg_does(float64):
    """All start from one model, so that the updates are those of FedAvg; only what is done with them differs."""
    graph, plain = (settings("moon", train__rounds=1, **more) for more in ({"algorithm__topology": "ring"}, {}))
    context = context_for(plain)
    trials = [new_trial(resolve(config, context.data), context) for config in (graph, plain)]
    ours, theirs = (context.engine.run_cohort(make_jobs(trial, context)) for trial in trials)
    assert same_bits([done.upload.tensors for done in ours], [done.upload.tensors for done in theirs])


def test_a_resumed_graph_is_never_interrupted(tmp_path: Path):
    """Half of the parties at a time, in a graph that is drawn every round: models, count of mixings and memory."""
    graph = {"algorithm__topology": "random:2", "algorithm__topology_changes": "every-round", "data__parties": 6}
    short, long = (settings("moon", train__rounds=n, cohort__fraction=0.5, **graph) for n in (2, 4))
    ((whole, before),) = execute(*set_up([long]), [tmp_path / "whole"])
    execute(*set_up([short]), [tmp_path / "parts"])
    ((resumed, after),) = execute(*set_up([long]), [tmp_path / "parts"], resume=True)
    assert same_bits((whole.state, whole.memory), (resumed.state, resumed.memory))
    for key in ("accuracy_by_party", "consensus_accuracy", "consensus_distance", "bytes_up"):
        assert [row.get(key) for row in before.rows] == [row.get(key) for row in after.rows]


def test_a_graph_changes_every_round_only_if_it_is_drawn():
    with pytest.raises(UserError, match="needs a graph that is drawn, --topology random:K, got ring"):
        run_one(settings("fedavg", algorithm__topology="ring", algorithm__topology_changes="every-round"))


def test_a_term_goes_with_a_graph_and_a_phase_does_not():
    chosen = settings("fedntd+moon", algorithm__topology="ring").algorithm
    assert (chosen.name, chosen.server) == ("fedntd", "moon+gossip")
    with pytest.raises(UserError, match=r"^fedavg\+gossip\+ccvr does not fit: a phase after training changes the glob"):
        settings("fedavg+ccvr", algorithm__topology="ring")
    with pytest.raises(UserError, match="has all rows in one place, gossip needs several parties; omit"):
        settings("centralised+gossip")
