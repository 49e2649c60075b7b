"""What a site may hand in at the door: replies of a plain form, and no more bytes than it was sent, about twice.

Flower's store keeps what is handed in by its name and the names of its parts. Names that stand for other parts in
another place would make a few bytes into a tree without end, and parts that nobody asked for would fill the memory.
"""

from collections import Counter

from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import ObjectTree, PullObjectRequest, PushObjectRequest
from google.protobuf.message import DecodeError

PARTS = 4096  # of one reply; Flower makes them of 5 MiB
NAMES = 1_000_000  # of parts, that are remembered in a run
ROOM = 16 << 20  # bytes that a site may hand in beside twice what it was sent


class Unfit(Exception):
    """Something that a site cannot mean to hand in."""


class Cargo:
    """Judges what goes in by what went out."""

    def __init__(self) -> None:
        self.parts: dict[str, tuple[str, ...]] = {}  # by name: the names of its parts, which never change
        self.sent: set[tuple[str, str]] = set()  # site and part
        self.taken: set[tuple[str, str]] = set()
        self.credit: Counter[str] = Counter()  # by site: bytes it may still hand in, beside ROOM

    def judge(self, site: str, path: bytes, body: bytes) -> None:
        """Look into a request that brings something; raise Unfit where it cannot be meant."""
        if path.endswith(b"/push-messages"):
            self._reply(PushMessagesRequest.FromString(body))
        elif path.endswith(b"/push-object"):
            self._object(site, PushObjectRequest.FromString(body))

    def note(self, site: str, path: bytes, body: bytes, answer: bytes) -> None:
        """Count what a site was sent, each part once."""
        if not path.endswith(b"/pull-object"):
            return
        try:
            part = (site, PullObjectRequest.FromString(body).object_id[:64])
        except DecodeError:
            return
        if answer and part not in self.sent and len(self.sent) < NAMES:
            self.sent.add(part)
            self.credit[site] += 2 * len(answer)

    def _reply(self, request: PushMessagesRequest) -> None:
        if len(request.messages_list) != len(request.message_object_trees):
            raise Unfit("messages without their lists of parts")
        if not all(message.metadata.reply_to_message_id for message in request.messages_list):
            raise Unfit("a message that is no reply")
        found: dict[str, tuple[str, ...]] = {}
        left, count = list[ObjectTree](request.message_object_trees), 0
        while left:
            node, count = left.pop(), count + 1
            if count > PARTS or len(self.parts) + len(found) > NAMES:
                raise Unfit(f"a reply of more than {PARTS} parts, or a run of more than {NAMES}")
            parts = tuple(child.object_id for child in node.children)
            if found.setdefault(node.object_id, self.parts.get(node.object_id, parts)) != parts:
                raise Unfit("a part that is another one elsewhere")
            left += node.children
        self.parts |= found

    def _object(self, site: str, request: PushObjectRequest) -> None:
        part = (site, request.object_id[:64])
        if part in self.taken:
            return  # it takes the place of itself
        size = len(request.object_content)
        if self.credit[site] + ROOM < size or len(self.taken) >= NAMES:
            raise Unfit("far more than it was sent")
        self.taken.add(part)
        self.credit[site] -= size
