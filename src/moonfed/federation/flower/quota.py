"""Quota of uploads: well-formed replies only, and at most about twice the bytes received, or as many as are expected.

Flower's store keeps objects by their names and the names of their parts. Names that stand for different parts in
different places would make a few bytes into an endless tree, and unrequested objects would fill the memory.
"""

from collections import Counter

from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import ObjectTree, PullObjectRequest, PushObjectRequest
from google.protobuf.message import DecodeError

MAX_PARTS = 4096  # of one reply; Flower splits arrays into parts of 5 MiB
MAX_NAMES = 1_000_000  # of parts, remembered in a run
FREE_BYTES = 16 << 20  # that a site may upload in addition to twice what it received
MAX_NAME_CHARS = 64


class InvalidUpload(Exception):
    """An upload that no honest site makes."""


class UploadQuota:
    """Checks what sites upload against what they received."""

    def __init__(self) -> None:
        self.parts: dict[str, tuple[str, ...]] = {}  # by object: the names of its parts, which must not change
        self.received: set[tuple[str, str]] = set()  # site and object
        self.uploaded: set[tuple[str, str]] = set()
        self.credit: Counter[str] = Counter()  # by site: bytes that it may still upload, besides FREE_BYTES
        self.expected: Counter[str] = Counter()  # by site: bytes of replies that the coordinator asked for; only grows
        self.requests: dict[str, object] = {}  # by site: the last one of known size

    def expect(self, site: str, request: object, size: int) -> None:
        """Let a site upload a reply of known size; only the thread of the coordinator calls this.

        A request that is sent again, because its reply was lost, allows no more: a site can lose replies at will.
        """
        if self.requests.get(site) is not request:
            self.requests[site] = request
            self.expected[site] += size

    def check(self, site: str, path: bytes, body: bytes) -> None:
        """Check a request that uploads something; raise InvalidUpload if it is not acceptable."""
        if path.endswith(b"/push-messages"):
            self._check_reply(PushMessagesRequest.FromString(body))
        elif path.endswith(b"/push-object"):
            self._check_object(site, PushObjectRequest.FromString(body))

    def record_download(self, site: str, path: bytes, body: bytes, response: bytes) -> None:
        """Count what a site received, each object once."""
        if not path.endswith(b"/pull-object"):
            return
        try:
            part = (site, PullObjectRequest.FromString(body).object_id[:MAX_NAME_CHARS])
        except DecodeError:
            return
        if response and part not in self.received and len(self.received) < MAX_NAMES:
            self.received.add(part)
            self.credit[site] += 2 * len(response)

    def _check_reply(self, request: PushMessagesRequest) -> None:
        if len(request.messages_list) != len(request.message_object_trees):
            raise InvalidUpload("messages without their lists of parts")
        if not all(message.metadata.reply_to_message_id for message in request.messages_list):
            raise InvalidUpload("a message that is not a reply")
        found: dict[str, tuple[str, ...]] = {}
        pending, count = list[ObjectTree](request.message_object_trees), 0
        while pending:
            node, count = pending.pop(), count + 1
            if count > MAX_PARTS or len(self.parts) + len(found) > MAX_NAMES:
                raise InvalidUpload(f"a reply of more than {MAX_PARTS} parts, or a run of more than {MAX_NAMES}")
            parts = tuple(child.object_id for child in node.children)
            if found.setdefault(node.object_id, self.parts.get(node.object_id, parts)) != parts:
                raise InvalidUpload("one name for two different objects")
            pending += node.children
        self.parts |= found

    def _check_object(self, site: str, request: PushObjectRequest) -> None:
        part = (site, request.object_id[:MAX_NAME_CHARS])
        if part in self.uploaded:
            return  # it replaces itself
        size = len(request.object_content)
        if self.credit[site] + self.expected[site] + FREE_BYTES < size or len(self.uploaded) >= MAX_NAMES:
            raise InvalidUpload("far more than it received")
        self.uploaded.add(part)
        self.credit[site] -= size
