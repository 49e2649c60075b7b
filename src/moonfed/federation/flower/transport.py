"""Envelopes carried over Flower's grid: requests to nodes, and replies that arrive in parts.

Flower's own method waits minutes for the parts of a reply whose sender died. Here an incomplete reply is polled again
later, and nothing waits for it.
"""

import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from flwr.app import ArrayRecord, Message, MessageType
from flwr.common.constant import ErrorCode
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.inflatable.inflatable_protobuf_utils import make_pull_object_fn_protobuf
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPullError,
    ObjectUnavailableError,
    inflate_object_from_contents,
)
from flwr.supercore.run import RunNotRunningException
from flwr.superlink.grid import HttpGrid

from moonfed.core.errors import RunFailed
from moonfed.core.tree import nbytes
from moonfed.core.types import Tensors
from moonfed.federation.flower.messages import content_with, flower_key_bytes, malformed, read_message, tensor_record
from moonfed.federation.flower.quota import UploadQuota
from moonfed.federation.protocol.request import Envelope

UNDELIVERED = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE, ErrorCode.NODE_UNAVAILABLE)
FIELD_BYTES = 1 << 20  # that a reply may have besides its tensors
MIN_PART_BYTES = 1 << 16  # of all but a few parts; Flower makes them of 5 MiB
SMALL_PARTS = 64
TURN_SECONDS = 2.0  # for the parts of one reply, before the next one is polled


class GridTransport:
    """Carries envelopes; a site is identified by the public key with which its node logged in."""

    def __init__(
        self,
        grid: HttpGrid,
        allowed: dict[str, EllipticCurvePublicKey],
        lifetime: float,
        quota: UploadQuota | None = None,
    ) -> None:
        self.grid, self.lifetime = grid, lifetime
        self.quota = quota  # of a proxy in this process
        self.sites = {flower_key_bytes(key): site for site, key in allowed.items()}
        self.nodes: dict[str, int] = {}
        self.pending: dict[str, str] = {}  # message to site
        self.incomplete: dict[str, PartialReply] = {}  # by message
        self.limit = 2 * FIELD_BYTES
        self.last_record: tuple[Tensors, ArrayRecord] | None = None
        self.lost: Counter[str] = Counter()  # by site: requests or replies that were not delivered

    def connected(self) -> dict[str, str]:
        """Return the connected sites; a session is named by the time it began and the number of lost messages."""
        sessions: dict[str, str] = {}
        with flower_errors():
            nodes = self.grid.get_nodes()
        for node in nodes:
            site = self.sites.get(bytes(node.public_key))
            if site is not None:
                self.nodes[site], sessions[site] = node.node_id, f"{node.last_activated_at} {self.lost[site]}"
        return sessions

    def send(self, site: str, envelope: Envelope) -> None:
        """Send an envelope to a connected site; its reply may be about twice as large, or as large as is expected."""
        self.limit = 2 * FIELD_BYTES + max(2 * nbytes(envelope.tensors), envelope.reply_bytes)
        if self.quota is not None and envelope.reply_bytes:
            self.quota.expect(site, envelope, FIELD_BYTES + envelope.reply_bytes)
        if self.last_record is None or self.last_record[0] is not envelope.tensors:  # one record for a whole round
            self.last_record = (envelope.tensors, tensor_record(envelope.tensors))
        content = content_with(envelope.fields, self.last_record[1])
        message = Message(content, self.nodes[site], MessageType.TRAIN, ttl=self.lifetime)
        with flower_errors():
            identifiers = list(self.grid.push_messages([message]))
        for identifier in identifiers:
            if identifier:
                self.pending[identifier] = site

    def receive(self) -> list[tuple[str, Envelope | str]]:
        """Return the replies that are complete."""
        if not self.pending:
            return []
        with flower_errors():
            self._find_replies()
            return self._complete_replies()

    def _find_replies(self) -> None:
        waiting = [identifier for identifier in self.pending if identifier not in self.incomplete]
        if not waiting:
            return
        client = self.grid._runtime_client  # pyright: ignore[reportPrivateUsage]
        response = client.PullMessages(PullAppMessagesRequest(message_ids=waiting))
        for message, tree in zip(response.messages_list, response.message_object_trees, strict=True):
            identifier = message.metadata.reply_to_message_id
            if identifier in self.pending:
                self.incomplete[identifier] = PartialReply(message.metadata.message_id, tree, self.limit)

    def _complete_replies(self) -> list[tuple[str, Envelope | str]]:
        replies: list[tuple[str, Envelope | str]] = []
        for identifier, reply in list(self.incomplete.items()):
            site = self.pending[identifier]
            try:
                envelope = reply.poll(self.grid)
            except (ObjectUnavailableError, PartsPending):
                continue
            except ObjectPullError:  # its sender died before all of it was here
                envelope = None
            del self.incomplete[identifier], self.pending[identifier]
            if envelope is None:
                self.lost[site] += 1
            else:
                replies.append((site, envelope))
        return replies

    def discard_pending(self) -> None:
        """Stop waiting for replies, and drop the parts of those that are incomplete."""
        for reply in self.incomplete.values():
            with suppress(httpx.HTTPError):
                reply.drop(self.grid)
        self.pending, self.incomplete = {}, {}


@contextmanager
def flower_errors() -> Iterator[None]:
    """Turn the errors that Flower raises for an unexpected response of SuperLink into RunFailed."""
    try:
        yield
    except httpx.HTTPError:  # a lost connection is handled by the session that started SuperLink
        raise
    except (Exception, RunNotRunningException) as error:  # Flower's readers raise all kinds; the second is no Exception
        detail = f"{type(error).__name__} {error}".splitlines()[0]
        raise RunFailed(f"unexpected response of SuperLink ({detail}); resume with --resume") from None


class PartsPending(Exception):
    """A reply that may have more parts than could be pulled in its turn."""


class PartialReply:
    """A reply of which parts may still be missing."""

    def __init__(self, name: str, tree: Any, limit: int) -> None:
        self.name, self.limit, self.max_parts = name, limit, SMALL_PARTS + limit // MIN_PART_BYTES
        parts = dict.fromkeys(part.object_id for part in islice(iterate_object_tree(tree), self.max_parts + 1))
        self.missing = deque(parts)
        self.parts: dict[str, bytes] = {}

    def poll(self, grid: HttpGrid) -> Envelope | str | None:
        """Pull the available parts; return the envelope, or what is wrong with it, or None if it was not delivered."""
        if len(self.missing) + len(self.parts) > self.max_parts:
            self.drop(grid)
            return f"a reply of more than {self.max_parts} parts"
        client, run = grid._runtime_client, grid.run.run_id  # pyright: ignore[reportPrivateUsage]
        pull = make_pull_object_fn_protobuf(client.PullObject, grid.node, run)
        turn_ends = time.monotonic() + TURN_SECONDS
        while self.missing:
            if time.monotonic() > turn_ends:
                raise PartsPending
            part = pull(self.missing[0])
            self.parts[self.missing.popleft()] = part
            self.limit -= len(part)
            if self.limit < 0:
                self.drop(grid)
                return "a reply far larger than the model"
        self.drop(grid)
        try:
            message = inflate_object_from_contents(self.name, self.parts)
        except Exception as error:  # a reply comes from outside, and Flower's readers raise all kinds
            return malformed(error)
        if not isinstance(message, Message):
            return "a reply that is not a message"
        return None if message.has_error() and message.error.code in UNDELIVERED else read_message(message)

    def drop(self, grid: HttpGrid) -> None:
        """Let SuperLink delete it, complete or not."""
        request = ConfirmMessageReceivedRequest(node=grid.node, run_id=grid.run.run_id, message_object_id=self.name)
        grid._runtime_client.ConfirmMessageReceived(request)  # pyright: ignore[reportPrivateUsage]
