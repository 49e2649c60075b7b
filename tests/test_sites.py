"""Coordinator and sites without a network between them: what is lost, late, repeated or refused does no harm."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import rows
from federations import weights
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from moonfed.core.errors import RunFailed, UserError
from moonfed.core.types import Tensors
from moonfed.data.disk import read_tensors
from moonfed.federation.ask import Note, read_reply, reply_note
from moonfed.federation.places import Home, SitePlace, SiteSettings, make_home, make_site
from moonfed.federation.seal import sign
from moonfed.federation.serve import serve
from moonfed.federation.settings import FederationSettings
from moonfed.federation.site import Site
from moonfed.federation.wire import note_of
from moonfed.run.config import Config, make_config
from moonfed.run.session import run_trials

Fault = Callable[[str, int, Note, Note], list[Note]]  # site, how many asks it had, ask, reply: what arrives of it


def as_it_is(site: str, asks: int, ask: Note, reply: Note) -> list[Note]:
    """A wire on which everything arrives."""
    return [reply]


class Line:
    """Carries notes to sites in this process, with the faults that a test wants."""

    def __init__(self, places: dict[str, SitePlace], fault: Fault = as_it_is) -> None:
        self.places, self.fault = places, fault
        self.sites = {name: Site(place) for name, place in places.items()}
        self.asks = dict.fromkeys(places, 0)
        self.came: list[tuple[str, Note | str]] = []
        self.words = dict.fromkeys(places, 0)

    def present(self) -> dict[str, str]:
        return {name: str(word) for name, word in self.words.items()}

    def send(self, site: str, note: Note) -> None:
        self.asks[site] += 1
        reply = self.sites[site].answer(note)
        self.came += [(site, copy) for copy in self.fault(site, self.asks[site], note, reply)]

    def collect(self) -> list[tuple[str, Note | str]]:
        came, self.came = self.came, []
        return came

    def forget(self) -> None:
        pass

    def restart(self, site: str) -> None:
        """Let a site's process end and another one begin in its folder."""
        self.sites[site] = Site(self.places[site])
        self.words[site] += 1


class World:
    """A coordinator with three sites, and the same trial simulated."""

    def __init__(self, folder: Path, algorithm: str = "moon", rounds: int = 3) -> None:
        self.folder, self.algorithm = folder, algorithm
        self.home: Home = make_home(folder / "coordinator", "127.0.0.1", 9443, 1)
        self.places: dict[str, SitePlace] = {}
        for i in range(3):
            place = make_site(folder / f"s{i}", self.home.invitation, SiteSettings(f"s{i}", share=i))
            self.home.admit(f"s{i}", place.public)
            self.places[f"s{i}"] = place
        self.config = self.settings(rounds)

    def settings(self, rounds: int) -> Config:
        return make_config(
            {
                "algorithm": {"name": self.algorithm},
                "data": {"parties": 3},
                "model": {"model": "mlp"},
                "train": {"rounds": rounds, "epochs": 1, "batch": 40},
                "run": {"engine": "sequential"},
            }
        )

    def federate(self, line: Line, resume: bool = False, rounds: int = 3, **waiting: Any) -> list[dict[str, Any]]:
        values: dict[str, Any] = {"deadline": 0.5, "patience": 0, "attempts": 1} | waiting
        out = self.folder / "run"
        outcome = serve(self.settings(rounds), out, resume, self.home, line, FederationSettings(**values))
        assert outcome.failure is None
        return rows(out)

    def simulated(self) -> dict[str, str]:
        run_trials([(self.config, self.folder / "here")], False)
        return weights(self.folder / "here")

    def refusals(self) -> str:
        return (self.folder / "run" / "refused.jsonl").read_text()


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
    assert weights(tmp_path / "run") == world.simulated()


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
    from moonfed.data.digits import digits
    from moonfed.run.trial import fresh_model, net_spec, resolve

    data = digits()
    return fresh_model(net_spec(resolve(world.config, data), data), 0, "model", torch.device("cpu")).weights


def test_a_site_trains_for_nobody_but_its_coordinator(tmp_path: Path):
    world, other = World(tmp_path / "a"), World(tmp_path / "b")
    asked: list[Note] = []
    line = Line(other.places, lambda site, asks, ask, reply: [asked.append(ask) or reply])  # type: ignore[func-returns-value]
    other.federate(line, rounds=1)
    site = Site(world.places["s0"])
    for ask in asked:
        assert "did not sign" in str(site.answer(ask).words["refused"])
    assert not (tmp_path / "a" / "s0" / "memory").exists()


def test_an_ask_with_another_model_than_the_signed_one_is_refused(tmp_path: Path):
    world = World(tmp_path)
    asks: list[Note] = []
    line = Line(world.places, lambda site, n, ask, reply: [asks.append(ask) or reply])  # type: ignore[func-returns-value]
    world.federate(line, rounds=1)
    ask = next(ask for ask in asks if ask.tensors)
    changed = Note(ask.words, {name: tensor * 2 for name, tensor in ask.tensors.items()})
    assert "not the one that the coordinator signed" in str(Site(world.places["s0"]).answer(changed).words["refused"])


def test_an_old_ask_played_again_costs_a_site_nothing(tmp_path: Path):
    world = World(tmp_path)
    first: list[Note] = []

    def keep(site: str, asks: int, ask: Note, reply: Note) -> list[Note]:
        first.extend([ask] if site == "s0" and asks == 2 else [])
        return [reply]

    world.federate(Line(world.places, keep))
    before = sorted(path.name for path in (tmp_path / "s0" / "memory").rglob("*.safetensors"))
    assert "round 1 is over" in str(Site(world.places["s0"]).answer(first[0]).words["refused"])
    assert sorted(path.name for path in (tmp_path / "s0" / "memory").rglob("*.safetensors")) == before


def test_a_site_that_speaks_nonsense_is_left_out_and_nobody_else_is_hurt(tmp_path: Path):
    """Losses under other names or out of all measure, a claim that is none: signed or not, the round goes on."""
    world = World(tmp_path, rounds=5)
    key = world.places["s1"].key()

    def nonsense(site: str, asks: int, ask: Note, reply: Note) -> list[Note]:
        if site != "s1" or asks == 1:
            return [reply]
        claim, numbers, _ = read_reply(reply)
        renamed = {k.replace("loss/", "loss/my-"): v for k, v in numbers.items()}
        huge = numbers | {"loss/supervised": 1e39}

        def signed(said: dict[str, int | float]) -> Note:
            return reply_note(claim, said, reply.tensors, sign(key, claim, said, reply.tensors))

        return [
            [signed(renamed)],
            [signed(huge)],
            [Note({"refused": "\x1b[2J\nround 9: all is well " + "x" * 100_000}, {})],
            [Note({"claim": "[1]", "signature": b"x"}, {})],
            [Note({}, {})],
        ][asks - 2]

    found = world.federate(Line(world.places, nonsense), rounds=5)
    assert [row["cohort"] for row in found] == [[0, 2]] * 5
    said = world.refusals()
    assert said.count("malformed") == 3
    assert "impossible loss" in said
    assert "\\u001b" not in said
    assert len(said) < 5_000
    assert [json.loads(line)["round"] for line in said.splitlines()] == [1, 2, 3, 4, 5]


def test_of_two_sites_the_one_with_the_algorithms_losses_counts_whoever_comes_first(tmp_path: Path):
    world = World(tmp_path)
    (world.home.sites / "s2.pub").unlink()
    key = world.places["s0"].key()

    def renaming(site: str, asks: int, ask: Note, reply: Note) -> list[Note]:
        if site != "s0" or asks == 1:
            return [reply]
        claim, numbers, _ = read_reply(reply)
        said = {k.replace("loss/", "loss/my-"): v for k, v in numbers.items()}
        return [reply_note(claim, said, reply.tensors, sign(key, claim, said, reply.tensors))]

    places = {name: world.places[name] for name in ("s0", "s1")}
    found = world.federate(Line(places, renaming))
    assert [row["cohort"] for row in found] == [[1]] * 3


def test_a_site_that_claims_rows_out_of_all_proportion_does_not_begin(tmp_path: Path):
    world = World(tmp_path)
    key = world.places["s1"].key()

    def boasting(site: str, asks: int, ask: Note, reply: Note) -> list[Note]:
        if site != "s1" or asks > 1:
            return [reply]
        claim, numbers, _ = read_reply(reply)
        said = dict.fromkeys(numbers, 10**9) | {"rows": 10**10}
        return [reply_note(claim, said, {}, sign(key, claim, said, {}))]

    with pytest.raises(RunFailed, match=r"s1 says that it holds 10000000000 rows.*--rows-limit"):
        world.federate(Line(world.places, boasting))


def test_a_message_of_any_form_is_read_to_a_note_or_a_sentence(monkeypatch: pytest.MonkeyPatch):
    for name in ("_task_id", "_run_id", "_node_id"):  # Flower makes messages in its own processes only
        monkeypatch.setattr(TaskIdentity, name, 1)
    deep = b'{"a":{"dtype":"F32","shape":[' + b"1," * 99_999 + b'1],"data_offsets":[0,4]}}'
    vast = b'{"a":{"dtype":"F32","shape":[0,4611686018427387904,4611686018427387904],"data_offsets":[0,0]}}'
    for blob in (b"", b"\x00" * 7, *(struct.pack("<Q", len(head)) + head + b"\x00" * 4 for head in (deep, vast))):
        array = Array(dtype="uint8", shape=(len(blob),), stype="safetensors", data=blob)
        content = RecordDict({"tensors": ArrayRecord({"blob": array}), "words": ConfigRecord({"a": 1})})
        assert isinstance(note_of(Message(content, 1, "train")), str)
    for content in (
        RecordDict({"tensors": ConfigRecord({"blob": "x"}), "words": ConfigRecord({"a": 1})}),
        RecordDict({"words": ConfigRecord({"a": 1})}),
        RecordDict({}),
    ):
        assert isinstance(note_of(Message(content, 1, "train")), str)


def test_what_has_nothing_to_federate_is_refused(tmp_path: Path):
    for algorithm, words in (("centralised", "all rows in one place"), ("solo", "nothing to federate")):
        world = World(tmp_path / algorithm, algorithm)
        with pytest.raises(UserError, match=words):
            world.federate(Line(world.places))
        assert not (world.folder / "run").exists()
