"""Notes carried over Flower's grid: asks to nodes, and replies as they come, part by part.

Flower's own way to take replies waits, for minutes, for the parts of one whose sender died on the way. Here a reply
that is not whole yet is looked at again later, and nobody waits for it.
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
from moonfed.federation.flower.messages import as_flower, note_of, record, with_words
from moonfed.federation.protocol.request import Note

UNDELIVERED = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE, ErrorCode.NODE_UNAVAILABLE)
ROOM = 1 << 20  # bytes that a reply may have beside its tensors
PIECE = 1 << 16  # bytes that a part of it has at least, but for a few; Flower makes them of 5 MiB
FEW = 64
TURN = 2.0  # seconds for the parts of one reply; then it is the next one's turn


class GridPost:
    """Carries notes; a site is known by the public key with which its node logged in."""

    def __init__(self, grid: HttpGrid, allowed: dict[str, EllipticCurvePublicKey], lifetime: float) -> None:
        self.grid, self.lifetime = grid, lifetime
        self.sites = {as_flower(key): site for site, key in allowed.items()}
        self.nodes: dict[str, int] = {}
        self.pending: dict[str, str] = {}  # message to site
        self.coming: dict[str, Parcel] = {}  # by message: replies of which parts are missing
        self.limit = 2 * ROOM
        self.last: tuple[Tensors, ArrayRecord] | None = None
        self.lost: Counter[str] = Counter()  # by site: asks that did not get there, or whose reply did not get back

    def present(self) -> dict[str, str]:
        """Name the sites that are connected; the word is the time at which each connected, and how much was lost."""
        found: dict[str, str] = {}
        with speaking():
            nodes = self.grid.get_nodes()
        for node in nodes:
            site = self.sites.get(bytes(node.public_key))
            if site is not None:
                self.nodes[site], found[site] = node.node_id, f"{node.last_activated_at} {self.lost[site]}"
        return found

    def send(self, site: str, note: Note) -> None:
        """Send a note to a site that is present; its reply may be as large as what was sent."""
        self.limit = 2 * ROOM + 2 * nbytes(note.tensors)
        if self.last is None or self.last[0] is not note.tensors:  # all sites of a round get the same
            self.last = (note.tensors, record(note.tensors))
        message = Message(with_words(note, self.last[1]), self.nodes[site], MessageType.TRAIN, ttl=self.lifetime)
        with speaking():
            numbers = list(self.grid.push_messages([message]))
        for number in numbers:
            if number:
                self.pending[number] = site

    def collect(self) -> list[tuple[str, Note | str]]:
        """Take the replies that are whole."""
        if not self.pending:
            return []
        with speaking():
            return self._collected()

    def _collected(self) -> list[tuple[str, Note | str]]:
        waiting = [number for number in self.pending if number not in self.coming]
        if waiting:
            client = self.grid._runtime_client  # pyright: ignore[reportPrivateUsage]
            got = client.PullMessages(PullAppMessagesRequest(message_ids=waiting))
            for message, tree in zip(got.messages_list, got.message_object_trees, strict=True):
                number = message.metadata.reply_to_message_id
                if number in self.pending:
                    self.coming[number] = Parcel(message.metadata.message_id, tree, self.limit)
        found: list[tuple[str, Note | str]] = []
        for number, parcel in list(self.coming.items()):
            site = self.pending[number]
            try:
                note = parcel.look(self.grid)
            except (ObjectUnavailableError, NextTurn):
                continue
            except ObjectPullError:  # its sender died before all of it was here
                note = None
            del self.coming[number], self.pending[number]
            if note is None:
                self.lost[site] += 1
            else:
                found.append((site, note))
        return found

    def forget(self) -> None:
        """Wait no longer for what has not come; what has come of it is dropped."""
        for parcel in self.coming.values():
            with suppress(httpx.HTTPError):
                parcel.drop(self.grid)
        self.pending, self.coming = {}, {}


@contextmanager
def speaking() -> Iterator[None]:
    """Make one kind of error of all that Flower raises where SuperLink does not speak as agreed."""
    try:
        yield
    except httpx.HTTPError:  # the connection itself, which whoever started SuperLink knows more of
        raise
    except (Exception, RunNotRunningException) as error:  # the second is no Exception
        said = f"{type(error).__name__} {error}".splitlines()[0]
        raise RunFailed(f"SuperLink does not speak as agreed ({said}); go on with --resume") from None


class NextTurn(Exception):
    """A reply of which more parts may be there than could be taken now."""


class Parcel:
    """A reply of which parts may still be on their way."""

    def __init__(self, name: str, tree: Any, limit: int) -> None:
        self.name, self.limit, self.most = name, limit, FEW + limit // PIECE
        parts = dict.fromkeys(part.object_id for part in islice(iterate_object_tree(tree), self.most + 1))
        self.missing = deque(parts)
        self.parts: dict[str, bytes] = {}

    def look(self, grid: HttpGrid) -> Note | str | None:
        """Take the parts that are there; return the note, or what is wrong with it, or None if it was not delivered."""
        if len(self.missing) + len(self.parts) > self.most:
            self.drop(grid)
            return f"a reply of more than {self.most} parts"
        client, run = grid._runtime_client, grid.run.run_id  # pyright: ignore[reportPrivateUsage]
        pull = make_pull_object_fn_protobuf(client.PullObject, grid.node, run)
        ends = time.monotonic() + TURN
        while self.missing:
            if time.monotonic() > ends:
                raise NextTurn
            part = pull(self.missing[0])
            self.parts[self.missing.popleft()] = part
            self.limit -= len(part)
            if self.limit < 0:
                self.drop(grid)
                return "a reply far larger than the model"
        self.drop(grid)
        try:
            message = inflate_object_from_contents(self.name, self.parts)
        except Exception as error:  # Flower's readers raise all kinds
            return f"a message in another form: {type(error).__name__}: {str(error)[:200]}"
        if not isinstance(message, Message):
            return "a reply that is no message"
        return None if message.has_error() and message.error.code in UNDELIVERED else note_of(message)

    def drop(self, grid: HttpGrid) -> None:
        """Let SuperLink forget it, whole or not."""
        done = ConfirmMessageReceivedRequest(node=grid.node, run_id=grid.run.run_id, message_object_id=self.name)
        grid._runtime_client.ConfirmMessageReceived(done)  # pyright: ignore[reportPrivateUsage]
