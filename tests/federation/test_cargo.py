"""What a site may hand in: no trees without end, nothing that is no reply, and not far more than it was sent."""

import pytest
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import Message, Metadata, ObjectTree, PullObjectRequest, PushObjectRequest

from moonfed.federation.flower import quota as cargo
from moonfed.federation.flower.quota import PARTS, ROOM, Cargo, Unfit

MESSAGES, PULL, PUSH = (f"/v1/fleet/{name}".encode() for name in ("push-messages", "pull-object", "push-object"))


def tree(name: str, *parts: ObjectTree) -> ObjectTree:
    return ObjectTree(object_id=name, children=parts)


def reply(*trees: ObjectTree, to: str = "ask") -> bytes:
    messages = [Message(metadata=Metadata(reply_to_message_id=to)) for _ in trees]
    return PushMessagesRequest(messages_list=messages, message_object_trees=trees).SerializeToString()


def test_a_reply_passes_and_so_does_the_same_again():
    held = Cargo()
    zeros = tree("zeros")
    for _ in range(2):
        held.judge("north", MESSAGES, reply(tree("m", tree("arrays", tree("a"), zeros, zeros), tree("words"))))
    held.judge("south", MESSAGES, reply(tree("n", tree("others", zeros, tree("b")))))


def test_a_few_names_cannot_stand_for_a_tree_without_end():
    levels = [tree("L0")] + [tree(f"L{i}", tree(f"L{i - 1}"), tree(f"L{i - 1}")) for i in range(1, 40)]
    with pytest.raises(Unfit, match="another one elsewhere"):
        Cargo().judge("north", MESSAGES, reply(tree("m", *levels)))


def test_nor_can_they_over_several_replies_of_several_sites():
    held = Cargo()
    held.judge("north", MESSAGES, reply(tree("m", tree("L1", tree("L0"), tree("L0")))))
    with pytest.raises(Unfit, match="another one elsewhere"):
        held.judge("south", MESSAGES, reply(tree("n", tree("L2", tree("L1"), tree("L1")))))
    held.judge("south", MESSAGES, reply(tree("o", tree("leaf"))))
    with pytest.raises(Unfit, match="another one elsewhere"):
        held.judge("north", MESSAGES, reply(tree("p", tree("leaf", tree("L0"), tree("L0")))))


def test_a_refused_reply_leaves_no_trace():
    held = Cargo()
    with pytest.raises(Unfit):
        held.judge("north", MESSAGES, reply(tree("m", tree("x", tree("y")), tree("x"))))
    held.judge("south", MESSAGES, reply(tree("n", tree("x"))))


def test_what_is_no_reply_or_has_too_many_parts_is_refused():
    with pytest.raises(Unfit, match="no reply"):
        Cargo().judge("north", MESSAGES, reply(tree("m"), to=""))
    with pytest.raises(Unfit, match="without their lists"):
        Cargo().judge("north", MESSAGES, PushMessagesRequest(message_object_trees=[tree("m")]).SerializeToString())
    with pytest.raises(Unfit, match=f"more than {PARTS} parts"):
        Cargo().judge("north", MESSAGES, reply(tree("m", *(tree(str(i)) for i in range(PARTS)))))


def test_a_site_hands_in_about_twice_what_it_was_sent_and_no_more(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cargo, "ROOM", 1000)
    held = Cargo()

    def put(name: str, size: int, site: str = "north") -> None:
        held.judge(site, PUSH, PushObjectRequest(object_id=name, object_content=bytes(size)).SerializeToString())

    put("a", 900)
    put("a", 900)  # the same again takes no more room
    with pytest.raises(Unfit, match="far more than it was sent"):
        put("b", 900)
    put("b", 900, "south")
    for _ in range(3):  # nor does fetching one part again and again buy more
        held.note("north", PULL, PullObjectRequest(object_id="ask").SerializeToString(), bytes(600))
    put("b", 1200)
    with pytest.raises(Unfit, match="far more than it was sent"):
        put("c", 200)


def test_there_is_room_for_what_goes_with_a_small_model():
    Cargo().judge("north", PUSH, PushObjectRequest(object_id="a", object_content=bytes(ROOM // 2)).SerializeToString())
