"""A site obeys only its coordinator, and a site that lies or sends garbage harms no other."""

import json
import struct
from pathlib import Path

import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from in_process import InProcessTransport, Numbers, World, exaggerated, lying, recording

from moonfed.core.errors import RunFailed, UserError
from moonfed.federation.flower.messages import read_message
from moonfed.federation.protocol.request import Envelope, read_reply, reply_envelope
from moonfed.federation.protocol.signing import sign
from moonfed.federation.site.trainer import SiteTrainer


def test_a_site_trains_for_nobody_but_its_coordinator(tmp_path: Path):
    world, other = World(tmp_path / "a"), World(tmp_path / "b")
    requests: list[Envelope] = []
    other.federate(InProcessTransport(other.folders, recording(requests)), rounds=1)
    site = SiteTrainer(world.folders["s0"])
    for request in requests:
        assert "not signed by the coordinator" in str(site.answer(request).fields["refused"])
    assert not (tmp_path / "a" / "s0" / "memory").exists()


def test_a_request_with_another_model_than_the_signed_one_is_rejected(tmp_path: Path):
    world = World(tmp_path)
    requests: list[Envelope] = []
    world.federate(InProcessTransport(world.folders, recording(requests)), rounds=1)
    request = next(request for request in requests if request.tensors)
    changed = Envelope(request.fields, {name: tensor * 2 for name, tensor in request.tensors.items()})
    reply = SiteTrainer(world.folders["s0"]).answer(changed)
    assert "not the one that the coordinator signed" in str(reply.fields["refused"])


def test_a_replayed_old_request_changes_nothing_at_a_site(tmp_path: Path):
    world = World(tmp_path)
    first: list[Envelope] = []

    def keep(site: str, count: int, request: Envelope, reply: Envelope) -> list[Envelope]:
        first.extend([request] if site == "s0" and count == 2 else [])
        return [reply]

    world.federate(InProcessTransport(world.folders, keep))
    before = sorted(path.name for path in (tmp_path / "s0" / "memory").rglob("*.safetensors"))
    assert "round 1 is over" in str(SiteTrainer(world.folders["s0"]).answer(first[0]).fields["refused"])
    assert sorted(path.name for path in (tmp_path / "s0" / "memory").rglob("*.safetensors")) == before


def test_a_site_that_sends_garbage_is_left_out_and_harms_no_other(tmp_path: Path):
    """Losses under other names or far too large, claims that are none: signed or not, the round continues without."""
    world = World(tmp_path, rounds=5)
    key = world.folders["s1"].private_key()

    def garbage(site: str, count: int, request: Envelope, reply: Envelope) -> list[Envelope]:
        if site != "s1" or count == 1:
            return [reply]
        claim, numbers, _ = read_reply(reply)
        renamed = {k.replace("loss/", "loss/my-"): v for k, v in numbers.items()}
        huge = numbers | {"loss/supervised": 1e39}

        def signed(said: dict[str, int | float]) -> Envelope:
            return reply_envelope(claim, said, reply.tensors, sign(key, claim, said, reply.tensors))

        return [
            [signed(renamed)],
            [signed(huge)],
            [Envelope({"refused": "\x1b[2J\nround 9: all is well " + "x" * 100_000}, {})],
            [Envelope({"claim": "[1]", "signature": b"x"}, {})],
            [Envelope({}, {})],
        ][count - 2]

    rows = world.federate(InProcessTransport(world.folders, garbage), rounds=5)
    assert [row["cohort"] for row in rows] == [[0, 2]] * 5
    said = world.rejections()
    assert said.count("malformed") == 3
    assert "impossible loss" in said
    assert "\\u001b" not in said
    assert len(said) < 5_000
    assert [json.loads(line)["round"] for line in said.splitlines()] == [1, 2, 3, 4, 5]


def test_of_two_sites_the_one_with_the_algorithms_losses_counts_whichever_replies_first(tmp_path: Path):
    world = World(tmp_path)
    (world.coordinator.allow_list_folder / "s2.pub").unlink()

    def renamed(numbers: Numbers) -> Numbers:
        return {k.replace("loss/", "loss/my-"): v for k, v in numbers.items()}

    folders = {name: world.folders[name] for name in ("s0", "s1")}
    rows = world.federate(InProcessTransport(folders, lying(world, "s0", renamed, enrolling=False)))
    assert [row["cohort"] for row in rows] == [[1]] * 3


def test_a_site_that_reports_far_more_rows_than_the_others_stops_the_start(tmp_path: Path):
    world = World(tmp_path)
    with pytest.raises(RunFailed, match=r"s1 reports 10000000000 rows.*--rows-limit"):
        world.federate(InProcessTransport(world.folders, lying(world, "s1", exaggerated, enrolling=True)))


def test_any_malformed_message_is_described_and_raises_nothing(monkeypatch: pytest.MonkeyPatch):
    for name in ("_task_id", "_run_id", "_node_id"):  # Flower makes messages in its own processes only
        monkeypatch.setattr(TaskIdentity, name, 1)
    deep = b'{"a":{"dtype":"F32","shape":[' + b"1," * 99_999 + b'1],"data_offsets":[0,4]}}'
    vast = b'{"a":{"dtype":"F32","shape":[0,4611686018427387904,4611686018427387904],"data_offsets":[0,0]}}'
    for blob in (b"", b"\x00" * 7, *(struct.pack("<Q", len(head)) + head + b"\x00" * 4 for head in (deep, vast))):
        array = Array(dtype="uint8", shape=(len(blob),), stype="safetensors", data=blob)
        content = RecordDict({"tensors": ArrayRecord({"blob": array}), "words": ConfigRecord({"a": 1})})
        assert isinstance(read_message(Message(content, 1, "train")), str)
    for content in (
        RecordDict({"tensors": ConfigRecord({"blob": "x"}), "words": ConfigRecord({"a": 1})}),
        RecordDict({"words": ConfigRecord({"a": 1})}),
        RecordDict({}),
    ):
        assert isinstance(read_message(Message(content, 1, "train")), str)


def test_algorithms_that_cannot_be_federated_are_rejected(tmp_path: Path):
    for algorithm, words in (("centralised", "all rows in one place"), ("solo", "sends nothing")):
        world = World(tmp_path / algorithm, algorithm)
        with pytest.raises(UserError, match=words):
            world.federate(InProcessTransport(world.folders))
        assert not (world.path / "run").exists()
