"""Uploads of a site: no endless trees, replies only, and not far more bytes than the site received."""

import pytest
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import Message, Metadata, ObjectTree, PullObjectRequest, PushObjectRequest

from moonfed.federation.flower import quota
from moonfed.federation.flower.quota import FREE_BYTES, MAX_PARTS, InvalidUpload, UploadQuota

MESSAGES, PULL, PUSH = (f"/v1/fleet/{name}".encode() for name in ("push-messages", "pull-object", "push-object"))


def tree(name: str, *parts: ObjectTree) -> ObjectTree:
    return ObjectTree(object_id=name, children=parts)


def reply(*trees: ObjectTree, to: str = "request") -> bytes:
    messages = [Message(metadata=Metadata(reply_to_message_id=to)) for _ in trees]
    return PushMessagesRequest(messages_list=messages, message_object_trees=trees).SerializeToString()


def test_a_reply_is_accepted_and_so_is_its_repetition():
    uploads = UploadQuota()
    zeros = tree("zeros")
    for _ in range(2):
        uploads.check("north", MESSAGES, reply(tree("m", tree("arrays", tree("a"), zeros, zeros), tree("words"))))
    uploads.check("south", MESSAGES, reply(tree("n", tree("others", zeros, tree("b")))))


def test_a_few_names_cannot_describe_an_endless_tree():
    levels = [tree("L0")] + [tree(f"L{i}", tree(f"L{i - 1}"), tree(f"L{i - 1}")) for i in range(1, 40)]
    with pytest.raises(InvalidUpload, match="one name for two different objects"):
        UploadQuota().check("north", MESSAGES, reply(tree("m", *levels)))


def test_a_few_names_cannot_describe_an_endless_tree_over_several_replies():
    uploads = UploadQuota()
    uploads.check("north", MESSAGES, reply(tree("m", tree("L1", tree("L0"), tree("L0")))))
    with pytest.raises(InvalidUpload, match="one name for two different objects"):
        uploads.check("south", MESSAGES, reply(tree("n", tree("L2", tree("L1"), tree("L1")))))
    uploads.check("south", MESSAGES, reply(tree("o", tree("leaf"))))
    with pytest.raises(InvalidUpload, match="one name for two different objects"):
        uploads.check("north", MESSAGES, reply(tree("p", tree("leaf", tree("L0"), tree("L0")))))


def test_a_rejected_reply_leaves_no_trace():
    uploads = UploadQuota()
    with pytest.raises(InvalidUpload):
        uploads.check("north", MESSAGES, reply(tree("m", tree("x", tree("y")), tree("x"))))
    uploads.check("south", MESSAGES, reply(tree("n", tree("x"))))


def test_messages_that_are_not_replies_or_have_too_many_parts_are_rejected():
    with pytest.raises(InvalidUpload, match="not a reply"):
        UploadQuota().check("north", MESSAGES, reply(tree("m"), to=""))
    with pytest.raises(InvalidUpload, match="without their lists"):
        UploadQuota().check(
            "north", MESSAGES, PushMessagesRequest(message_object_trees=[tree("m")]).SerializeToString()
        )
    with pytest.raises(InvalidUpload, match=f"more than {MAX_PARTS} parts"):
        UploadQuota().check("north", MESSAGES, reply(tree("m", *(tree(str(i)) for i in range(MAX_PARTS)))))


def test_a_site_uploads_at_most_about_twice_what_it_received(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(quota, "FREE_BYTES", 1000)
    uploads = UploadQuota()

    def put(name: str, size: int, site: str = "north") -> None:
        uploads.check(site, PUSH, PushObjectRequest(object_id=name, object_content=bytes(size)).SerializeToString())

    put("a", 900)
    put("a", 900)  # a repetition costs nothing
    with pytest.raises(InvalidUpload, match="far more than it received"):
        put("b", 900)
    put("b", 900, "south")
    for _ in range(3):  # receiving one part repeatedly gives no more credit
        uploads.record_download("north", PULL, PullObjectRequest(object_id="request").SerializeToString(), bytes(600))
    put("b", 1200)
    with pytest.raises(InvalidUpload, match="far more than it received"):
        put("c", 200)


def test_a_request_that_is_sent_again_allows_no_more_bytes():
    """A site that loses replies on purpose is sent the same request again and again."""
    uploads, first, second = UploadQuota(), object(), object()
    for _ in range(3):
        uploads.expect("north", first, 5000)
    assert uploads.expected["north"] == 5000
    uploads.expect("north", second, 5000)
    assert uploads.expected["north"] == 10000


def test_a_site_may_upload_a_reply_whose_size_the_coordinator_expects(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(quota, "FREE_BYTES", 100)
    uploads = UploadQuota()
    uploads.expect("north", object(), 5000)
    answer = PushObjectRequest(object_id="a", object_content=bytes(5000)).SerializeToString()
    uploads.check("north", PUSH, answer)
    with pytest.raises(InvalidUpload, match="far more than it received"):
        uploads.check("south", PUSH, answer)
    with pytest.raises(InvalidUpload, match="far more than it received"):
        uploads.check("north", PUSH, PushObjectRequest(object_id="b", object_content=bytes(200)).SerializeToString())


def test_the_free_bytes_suffice_for_the_fields_of_a_small_model():
    UploadQuota().check(
        "north", PUSH, PushObjectRequest(object_id="a", object_content=bytes(FREE_BYTES // 2)).SerializeToString()
    )
