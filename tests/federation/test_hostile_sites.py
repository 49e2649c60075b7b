"""What does not come from a site's coordinator is not obeyed there, and a site that lies or babbles hurts no other."""

import json
import struct
from pathlib import Path

import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from line import Line, World

from moonfed.core.errors import RunFailed, UserError
from moonfed.federation.flower.messages import note_of
from moonfed.federation.protocol.request import Note, read_reply, reply_note
from moonfed.federation.protocol.signing import sign
from moonfed.federation.site.trainer import Site


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
