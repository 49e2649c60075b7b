"""Coordinator and sites without a network between them: what is lost, late, repeated or refused does no harm."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import rows
from federations import weights
from line import Line, World

from moonfed.core.errors import RunFailed
from moonfed.core.files import read_tensors
from moonfed.core.types import Tensors
from moonfed.federation.pki.site_folder import SitePlace
from moonfed.federation.protocol.request import Note
from moonfed.federation.site.trainer import Site


@pytest.mark.parametrize("algorithm", ["fedavg", "fedavgm", "fednova", "fedprox", "moon-l2", "scaffold-niid"])
def test_every_algorithm_is_the_same_between_sites_as_in_the_simulation(tmp_path: Path, algorithm: str):
    world = World(tmp_path, algorithm)
    world.federate(Line(world.places))
    assert weights(tmp_path / "run") == world.simulated()


@pytest.mark.parametrize("algorithm", ["moon", "scaffold"])
def test_a_site_restarted_between_rounds_remembers(tmp_path: Path, algorithm: str):
    world = World(tmp_path, algorithm)
    line = Line(world.places)

    def restarting(site: str, asks: int, ask: Note, reply: Note) -> list[Note]:
        line.sites[site] = Site(world.places[site])
        return [reply]

    line.fault = restarting
    world.federate(line)
    assert weights(tmp_path / "run") == world.simulated()


def test_a_repeated_ask_gets_the_stored_reply(tmp_path: Path):
    world = World(tmp_path)
    replies: list[Note] = []
    line = Line(world.places)

    def twice(site: str, asks: int, ask: Note, reply: Note) -> list[Note]:
        if site == "s1" and "number/steps" in reply.words:
            line.sites[site] = Site(world.places[site])
            replies.append(line.sites[site].answer(ask))
            assert replies[-1].words == reply.words  # to the signature, which is another each time one signs
            assert all(torch.equal(replies[-1].tensors[k], v) for k, v in reply.tensors.items())
            return [reply, replies[-1]]
        return [reply]

    line.fault = twice
    world.federate(line)
    assert len(replies) == 3
    said = [json.loads(line) for line in world.refusals().splitlines()]
    assert [(s["refused"], s["round"], s["reason"]) for s in said] == [("s1", i, "repeated") for i in (1, 2, 3)]
    assert weights(tmp_path / "run") == world.simulated()


def test_a_site_that_answers_from_two_places_is_noticed_and_one_that_was_restarted_is_not(tmp_path: Path):
    world = World(tmp_path)
    copy = SitePlace(tmp_path / "copy")
    shutil.copytree(world.places["s1"].path, copy.path)
    line, said = Line(world.places), list[str]()
    one, two = line.sites["s1"], Site(copy)

    def elsewhere(site: str, asks: int, ask: Note, reply: Note) -> list[Note]:
        if site == "s0":
            line.sites[site] = Site(world.places[site])  # a process a message, as Flower's plain way has
        if site == "s1":
            line.sites[site] = two if asks % 2 else one
        if site == "s2" and asks == 2:
            line.sites[site] = Site(world.places[site])
        return [reply]

    line.fault = elsewhere
    found = world.federate(line, say=said.append)
    assert [line for line in said if "two places" in line] == [
        "s1 answers from two places: its key is in use twice, by a copy of its folder for one"
    ]
    noticed, refused = (json.loads(line) for line in world.refusals().splitlines())
    assert (noticed["noticed"], noticed["round"], noticed["reason"]) == ("s1", 2, "two places")
    assert "cannot go on in this run" in refused["detail"], "its memory is at the other place"
    assert [row["cohort"] for row in found] == [[0, 1, 2], [0, 2], [0, 1, 2]]


def test_a_reply_that_was_lost_is_asked_for_again_when_the_site_comes_back(tmp_path: Path):
    world = World(tmp_path, "scaffold")
    line = Line(world.places)

    def lost(site: str, asks: int, ask: Note, reply: Note) -> list[Note]:
        if site == "s1" and asks == 3:
            line.restart(site)
            return []
        return [reply]

    line.fault = lost
    found = world.federate(line, deadline=30)
    assert line.asks == {"s0": 4, "s1": 5, "s2": 4}
    assert [row["cohort"] for row in found] == [[0, 1, 2]] * 3
    assert weights(tmp_path / "run") == world.simulated()


@pytest.mark.parametrize("algorithm", ["moon", "scaffold"])
def test_a_site_whose_reply_did_not_count_goes_on_from_its_last_round_that_did(tmp_path: Path, algorithm: str):
    """Site 1's second reply is lost or spoilt: both give the same model, and its memory is that of round one."""
    ends: list[dict[str, str]] = []
    for spoilt in (False, True):
        world = World(tmp_path / str(spoilt), algorithm)
        started: list[Tensors] = []

        def fault(
            site: str,
            asks: int,
            ask: Note,
            reply: Note,
            spoilt: bool = spoilt,
            at: World = world,
            began: Any = started,
        ) -> list[Note]:
            if site != "s1" or asks != 3:
                return [reply]
            memory = next((at.folder / "s1" / "memory").iterdir())
            began.append(read_tensors(memory / "slots-1.safetensors")[0])
            broken = {name: tensor + 1 for name, tensor in reply.tensors.items()}
            return [Note(reply.words, broken)] if spoilt else []

        found = world.federate(Line(world.places, fault))
        assert [row["cohort"] for row in found] == [[0, 1, 2], [0, 2], [0, 1, 2]]
        assert ("altered" if spoilt else "not in time") in world.refusals()
        memory = next((world.folder / "s1" / "memory").iterdir())
        assert sorted(path.name for path in memory.glob("slots-*")) == ["slots-1.safetensors", "slots-3.safetensors"]
        kept = read_tensors(memory / "slots-1.safetensors")[0]
        assert all(torch.equal(kept[name], tensor) for name, tensor in started[0].items())
        ends.append(weights(world.folder / "run"))
    assert ends[0] == ends[1]


def test_a_coordinator_that_is_killed_before_it_saved_a_round_asks_for_it_again(tmp_path: Path):
    world = World(tmp_path, "scaffold")

    class PowerCut(Exception):
        pass

    def cut(site: str, asks: int, ask: Note, reply: Note) -> list[Note]:
        if asks == 3 and site == "s2":  # all three have trained round two, and nothing of it is saved
            raise PowerCut
        return [reply]

    with pytest.raises(PowerCut):
        world.federate(Line(world.places, cut))
    assert len(rows(tmp_path / "run")) == 1
    world.federate(Line(world.places), resume=True)
    assert weights(tmp_path / "run") == world.simulated()


def test_a_round_without_quorum_is_asked_for_again_and_then_fails_with_what_was_done_saved(tmp_path: Path):
    world = World(tmp_path)

    def silent(site: str, asks: int, ask: Note, reply: Note) -> list[Note]:
        return [reply] if asks <= 2 or site == "s0" else []

    line = Line(world.places, silent)
    with pytest.raises(RunFailed, match=r"round 2 got too few replies 2 times \(2 of 3 are needed\)"):
        world.federate(line, attempts=2)
    assert line.asks["s1"] == 4
    assert len(rows(tmp_path / "run")) == 1
    world.federate(Line(world.places), resume=True)
    assert weights(tmp_path / "run") == world.simulated()


def test_shares_are_those_of_the_sites_that_answered(tmp_path: Path):
    """With one of three silent from the start, the round is that of the other two, weighed by their rows."""
    world = World(tmp_path, "fedavg", 1)
    line = Line(world.places, lambda site, asks, ask, reply: [reply] if site != "s1" or asks == 1 else [])
    world.federate(line, rounds=1)
    seen: dict[str, Note] = {}

    def keep(site: str, asks: int, ask: Note, reply: Note) -> list[Note]:
        seen[site] = reply
        return [reply]

    other = World(tmp_path / "all", "fedavg", 1)
    other.federate(Line(other.places, keep), rounds=1)
    one, two = seen["s0"], seen["s2"]
    n, m = float(one.words["number/rows"]), float(two.words["number/rows"])  # type: ignore[arg-type]
    mean = {k: (n * one.tensors[k] + m * two.tensors[k]) / (n + m) for k in one.tensors}
    start = world_start(other)
    end, _ = read_tensors(tmp_path / "run" / "final.safetensors")
    for name, tensor in end.items():
        assert torch.allclose(tensor, start[name] + mean[f"delta/{name}"], atol=1e-6)


def world_start(world: World) -> Tensors:
    """The first global model of a world."""
    from moonfed.data.catalog.digits import digits
    from moonfed.training.trial import fresh_model, net_spec, resolve

    data = digits()
    return fresh_model(net_spec(resolve(world.config, data), data), 0, "model", torch.device("cpu")).weights
