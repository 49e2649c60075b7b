"""Sites in a graph: each has a model of its own, the coordinator mixes them, and the run is the simulation's."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import rows
from federations import weights
from in_process import InProcessTransport, World, recording
from trained_sites import BAD, ROUND, Federation

from moonfed.core.errors import UserError
from moonfed.federation.protocol.rejection import Rejection
from moonfed.federation.protocol.request import Envelope
from moonfed.training.config import Config, make_config


class Graph(World):
    """A coordinator with three sites in a graph."""

    def __init__(self, path: Path, algorithm: str = "moon", **graph: str) -> None:
        self.graph = graph
        super().__init__(path, algorithm)

    def settings(self, rounds: int) -> Config:
        values = super().settings(rounds).model_dump()
        return make_config(values | {"algorithm": {"name": self.algorithm} | self.graph})


def edges(tmp_path: Path, text: str) -> str:
    path = tmp_path / "edges.csv"
    path.write_text(text)
    return str(path)


def models_sent(requests: list[Envelope]) -> list[int]:
    """How many different models the sites were sent, round by round."""
    by_round: dict[int, set[Any]] = {}
    for request in requests:
        if request.tensors:
            claim = json.loads(str(request.fields["ask"]))["claim"]
            by_round.setdefault(claim["round"], set()).add(claim["model"])
    return [len(models) for _, models in sorted(by_round.items())]


@pytest.mark.parametrize("algorithm", ["fedavg", "moon"])
@pytest.mark.parametrize("graph", ["ring", "random:2", "path"])
def test_a_graph_of_sites_is_that_of_the_simulation(tmp_path: Path, algorithm: str, graph: str):
    topology = edges(tmp_path, "0,1\n2,1\n") if graph == "path" else graph
    changes = "every-round" if graph == "random:2" else "never"
    world = Graph(tmp_path, algorithm, topology=topology, topology_changes=changes)
    world.federate(InProcessTransport(world.folders))
    assert weights(tmp_path / "run") == world.simulated()
    for key in ("accuracy_by_party", "consensus_accuracy", "consensus_distance", "bytes_up"):
        assert [row[key] for row in rows(tmp_path / "run")] == [row[key] for row in rows(tmp_path / "here")]


def test_every_site_is_sent_its_own_model_from_the_second_round_on(tmp_path: Path):
    requests = list[Envelope]()
    world = Graph(tmp_path, topology=edges(tmp_path, "s0,s1\ns2,s1\n"))
    world.federate(InProcessTransport(world.folders, recording(requests)))
    assert models_sent(requests) == [1, 3, 3]
    plain = World(tmp_path / "server")
    requests.clear()
    plain.federate(InProcessTransport(plain.folders, recording(requests)))
    assert models_sent(requests) == [1, 1, 1]


def test_an_update_that_starts_from_another_sites_model_is_rejected():
    fed = Federation("fedavg")
    validator = fed.validator()
    validator.start_round(ROUND, fed.model, fed.expected, {BAD: "00" * 32})
    claim = validator.issue_claim(BAD)
    assert claim.model == "00" * 32
    assert validator.issue_claim("site0").model == fed.model, "a site without a model of its own has that of all"
    with pytest.raises(Rejection) as raised:
        validator.validate(fed.reply(replace(claim, model=fed.model)))
    assert raised.value.reason == "stale model"
    validator.validate(fed.reply(claim))


def test_a_site_that_is_away_for_a_round_keeps_its_model(tmp_path: Path):
    requests = list[Envelope]()

    def silent(site: str, count: int, request: Envelope, reply: Envelope) -> list[Envelope]:
        requests.append(request)
        return [] if site == "s1" and count == 3 else [reply]

    world = Graph(tmp_path, topology="ring")
    found = world.federate(InProcessTransport(world.folders, silent))
    assert [row["cohort"] for row in found] == [[0, 1, 2], [0, 2], [0, 1, 2]]
    to_s1 = [r.tensors for r in requests if r.tensors and json.loads(str(r.fields["ask"]))["claim"]["site"] == "s1"]
    before, after = to_s1[1], to_s1[2]
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_run_of_a_graph_is_resumed_between_sites(tmp_path: Path):
    world = Graph(tmp_path, "moon", topology="random:2", topology_changes="every-round")

    class PowerCut(Exception):
        pass

    def cut(site: str, count: int, request: Envelope, reply: Envelope) -> list[Envelope]:
        if count == 3 and site == "s2":
            raise PowerCut
        return [reply]

    with pytest.raises(PowerCut):
        world.federate(InProcessTransport(world.folders, cut))
    world.federate(InProcessTransport(world.folders), resume=True)
    assert weights(tmp_path / "run") == world.simulated()


def test_no_file_of_a_site_is_read_because_a_coordinator_names_it(tmp_path: Path):
    """The settings that travel hold the edges; a name in their place is never opened at a site."""
    secret = tmp_path / "secret.csv"
    secret.write_text("not,a,graph")
    world, requests = Graph(tmp_path, topology=edges(tmp_path, "0,1\n1,2\n")), list[Envelope]()
    world.federate(InProcessTransport(world.folders, recording(requests)))
    configs = [json.loads(json.loads(str(r.fields["ask"]))["config"]) for r in requests]
    assert {config["algorithm"]["topology"] for config in configs} == {"0-1 1-2"}
    make_config({"algorithm": {"name": "moon", "topology": str(tmp_path / "nowhere.csv")}})  # as a site reads settings
    with pytest.raises(UserError, match=r"secret\.csv, line 1, needs two parties, got 3"):
        Graph(tmp_path / "other", topology=str(secret)).federate(InProcessTransport(world.folders))
