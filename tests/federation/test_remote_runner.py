"""Coordinator and sites without a network: what is lost, late, repeated or rejected does no harm."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import rows
from federations import weights
from in_process import InProcessTransport, World, capture

from moonfed.core.errors import RunFailed
from moonfed.core.files import read_tensors
from moonfed.core.types import Tensors
from moonfed.federation.pki.site_folder import SiteFolder
from moonfed.federation.protocol.request import Envelope
from moonfed.federation.site.trainer import SiteTrainer
from moonfed.training.config import Config, make_config
from moonfed.training.registry import ALGORITHMS

GLOBAL = [name for name, preset in ALGORITHMS.items() if not (preset.pooled or preset.personal)]


@pytest.mark.parametrize("algorithm", [*GLOBAL, "fedntd+moon+fednova+adam", "median+momentum"])
def test_every_algorithm_is_the_same_between_sites_as_in_the_simulation(tmp_path: Path, algorithm: str):
    world = World(tmp_path, algorithm)
    world.federate(InProcessTransport(world.folders))
    assert weights(tmp_path / "run") == world.simulated()


class WithoutTeacher(World):
    """Sites that distil from even scores."""

    def settings(self, rounds: int) -> Config:
        return make_config(super().settings(rounds).model_dump() | {"algorithm": {"name": "fedlmd", "teacher": "none"}})


def test_a_rule_chosen_by_a_word_is_the_same_between_sites_as_in_the_simulation(tmp_path: Path):
    world = WithoutTeacher(tmp_path)
    world.federate(InProcessTransport(world.folders))
    assert weights(tmp_path / "run") == world.simulated()
    assert weights(tmp_path / "run") != World(tmp_path / "plain", "fedlmd").simulated()


class Scheduled(World):
    """Sites that train with AdamW under a schedule."""

    def settings(self, rounds: int) -> Config:
        values = super().settings(rounds).model_dump()
        train = values["train"] | {"optimizer": "adamw", "momentum": 0.0, "lr_schedule": "cosine"}
        return make_config(values | {"train": train})


@pytest.mark.parametrize("algorithm", ["fedavg", "moon"])
def test_optimizer_and_schedule_travel_to_the_sites(tmp_path: Path, algorithm: str):
    world = Scheduled(tmp_path, algorithm)
    world.federate(InProcessTransport(world.folders))
    assert weights(tmp_path / "run") == world.simulated()
    plain = World(tmp_path / "plain", algorithm)
    assert weights(tmp_path / "run") != plain.simulated()


@pytest.mark.parametrize("algorithm", ["moon", "scaffold", "scaffold+moon"])
def test_a_site_restarted_between_rounds_keeps_its_memory(tmp_path: Path, algorithm: str):
    world = World(tmp_path, algorithm)
    transport = InProcessTransport(world.folders)

    def restart(site: str, count: int, request: Envelope, reply: Envelope) -> list[Envelope]:
        transport.trainers[site] = SiteTrainer(world.folders[site])
        return [reply]

    transport.fault = restart
    world.federate(transport)
    assert weights(tmp_path / "run") == world.simulated()


def test_a_repeated_request_gets_the_stored_reply(tmp_path: Path):
    world = World(tmp_path)
    replies: list[Envelope] = []
    transport = InProcessTransport(world.folders)

    def twice(site: str, count: int, request: Envelope, reply: Envelope) -> list[Envelope]:
        if site == "s1" and "number/steps" in reply.fields:
            transport.trainers[site] = SiteTrainer(world.folders[site])
            replies.append(transport.trainers[site].answer(request))
            assert replies[-1].fields == reply.fields  # even the signature, which is random
            assert all(torch.equal(replies[-1].tensors[k], v) for k, v in reply.tensors.items())
            return [reply, replies[-1]]
        return [reply]

    transport.fault = twice
    world.federate(transport)
    assert len(replies) == 3
    entries = [json.loads(line) for line in world.rejections().splitlines()]
    assert [(s["refused"], s["round"], s["reason"]) for s in entries] == [("s1", i, "repeated") for i in (1, 2, 3)]
    assert weights(tmp_path / "run") == world.simulated()


def test_two_processes_with_one_key_are_reported_and_a_restart_is_not(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    capture(caplog)
    world = World(tmp_path)
    copy = SiteFolder(tmp_path / "copy")
    shutil.copytree(world.folders["s1"].path, copy.path)
    transport = InProcessTransport(world.folders)
    one, two = transport.trainers["s1"], SiteTrainer(copy)

    def alternate(site: str, count: int, request: Envelope, reply: Envelope) -> list[Envelope]:
        if site == "s0":
            transport.trainers[site] = SiteTrainer(
                world.folders[site]
            )  # one process per message, as with Flower's own commands
        if site == "s1":
            transport.trainers[site] = two if count % 2 else one
        if site == "s2" and count == 2:
            transport.trainers[site] = SiteTrainer(world.folders[site])
        return [reply]

    transport.fault = alternate
    found = world.federate(transport)
    assert [line for line in caplog.messages if "two processes" in line] == [
        "two processes are using s1's key; was its folder copied to another machine?"
    ]
    duplicate, rejected = (json.loads(line) for line in world.rejections().splitlines())
    assert (duplicate["noticed"], duplicate["round"], duplicate["reason"]) == ("s1", 2, "duplicate process")
    assert "cannot continue in this run" in rejected["detail"], "its memory is in the other folder"
    assert [row["cohort"] for row in found] == [[0, 1, 2], [0, 2], [0, 1, 2]]


def test_a_lost_reply_is_requested_again_when_the_site_reconnects(tmp_path: Path):
    world = World(tmp_path, "scaffold")
    transport = InProcessTransport(world.folders)

    def lose(site: str, count: int, request: Envelope, reply: Envelope) -> list[Envelope]:
        if site == "s1" and count == 3:
            transport.restart(site)
            return []
        return [reply]

    transport.fault = lose
    found = world.federate(transport, deadline=30)
    assert transport.requests == {"s0": 4, "s1": 5, "s2": 4}
    assert [row["cohort"] for row in found] == [[0, 1, 2]] * 3
    assert weights(tmp_path / "run") == world.simulated()


@pytest.mark.parametrize("algorithm", ["moon", "scaffold"])
def test_a_site_whose_reply_was_not_used_continues_from_its_last_accepted_round(tmp_path: Path, algorithm: str):
    """Site 1's second reply is lost or corrupted: both give the same model, and its memory is that of round one."""
    ends: list[dict[str, str]] = []
    for corrupted in (False, True):
        world = World(tmp_path / str(corrupted), algorithm)
        started: list[Tensors] = []

        def fault(
            site: str,
            count: int,
            request: Envelope,
            reply: Envelope,
            corrupted: bool = corrupted,
            at: World = world,
            began: Any = started,
        ) -> list[Envelope]:
            if site != "s1" or count != 3:
                return [reply]
            memory = next((at.path / "s1" / "memory").iterdir())
            began.append(read_tensors(memory / "slots-1.safetensors")[0])
            broken = {name: tensor + 1 for name, tensor in reply.tensors.items()}
            return [Envelope(reply.fields, broken)] if corrupted else []

        found = world.federate(InProcessTransport(world.folders, fault))
        assert [row["cohort"] for row in found] == [[0, 1, 2], [0, 2], [0, 1, 2]]
        assert ("altered" if corrupted else "not before the deadline") in world.rejections()
        memory = next((world.path / "s1" / "memory").iterdir())
        assert sorted(path.name for path in memory.glob("slots-*")) == ["slots-1.safetensors", "slots-3.safetensors"]
        kept = read_tensors(memory / "slots-1.safetensors")[0]
        assert all(torch.equal(kept[name], tensor) for name, tensor in started[0].items())
        ends.append(weights(world.path / "run"))
    assert ends[0] == ends[1]


def test_a_coordinator_killed_before_it_saved_a_round_requests_it_again(tmp_path: Path):
    world = World(tmp_path, "scaffold")

    class PowerCut(Exception):
        pass

    def cut(site: str, count: int, request: Envelope, reply: Envelope) -> list[Envelope]:
        if count == 3 and site == "s2":  # all three have trained round two, and nothing of it is saved
            raise PowerCut
        return [reply]

    with pytest.raises(PowerCut):
        world.federate(InProcessTransport(world.folders, cut))
    assert len(rows(tmp_path / "run")) == 1
    world.federate(InProcessTransport(world.folders), resume=True)
    assert weights(tmp_path / "run") == world.simulated()


def test_a_round_without_quorum_is_attempted_again_and_then_fails_with_the_earlier_rounds_saved(tmp_path: Path):
    world = World(tmp_path)

    def silent(site: str, count: int, request: Envelope, reply: Envelope) -> list[Envelope]:
        return [reply] if count <= 2 or site == "s0" else []

    transport = InProcessTransport(world.folders, silent)
    with pytest.raises(RunFailed, match=r"round 2 got too few replies in 2 attempts \(2 of 3 are needed\)"):
        world.federate(transport, attempts=2)
    assert transport.requests["s1"] == 4
    assert len(rows(tmp_path / "run")) == 1
    world.federate(InProcessTransport(world.folders), resume=True)
    assert weights(tmp_path / "run") == world.simulated()


def test_shares_are_those_of_the_sites_that_replied(tmp_path: Path):
    """With one of three silent from the start, the round is that of the other two, weighted by their rows."""
    world = World(tmp_path, "fedavg", 1)

    def silent(site: str, count: int, request: Envelope, reply: Envelope) -> list[Envelope]:
        return [reply] if site != "s1" or count == 1 else []

    world.federate(InProcessTransport(world.folders, silent), rounds=1)
    seen: dict[str, Envelope] = {}

    def keep(site: str, count: int, request: Envelope, reply: Envelope) -> list[Envelope]:
        seen[site] = reply
        return [reply]

    other = World(tmp_path / "all", "fedavg", 1)
    other.federate(InProcessTransport(other.folders, keep), rounds=1)
    one, two = seen["s0"], seen["s2"]
    n, m = float(one.fields["number/rows"]), float(two.fields["number/rows"])  # type: ignore[arg-type]
    mean = {k: (n * one.tensors[k] + m * two.tensors[k]) / (n + m) for k in one.tensors}
    start = world_start(other)
    end, _ = read_tensors(tmp_path / "run" / "final.safetensors")
    for name, tensor in end.items():
        assert torch.allclose(tensor, start[name] + mean[f"delta/{name}"], atol=1e-6)


def world_start(world: World) -> Tensors:
    """The first global model of a world."""
    from moonfed.data.catalog.digits import digits
    from moonfed.models import trained_tensors
    from moonfed.training.network import build, net_spec
    from moonfed.training.resolve import resolve

    data = digits()
    return trained_tensors(build(net_spec(resolve(world.config, data), data), 0, "model")).weights
