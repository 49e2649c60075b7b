"""A site at work: a Flower node beside it takes messages in, and this process, its rows loaded, answers them.

Flower starts a process a message for the code that the coordinator sends. Here the messages are answered by the
moonfed that is installed at the site: nothing is imported anew, and no code from elsewhere is run.
"""

import os
import secrets
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from flwr.app import Context, Message
from flwr.common.constant import SubStatus
from flwr.common.serde import context_from_proto
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import AcquireTaskRequest, PullAppMessagesRequest, PullTaskInputRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import pull_and_inflate_object_from_tree
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.run import RunNotRunningException
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.runtime.run_clientapp import push_message, push_task_output

from moonfed.core.files import make_folder
from moonfed.federation.flower.messages import content, note_of
from moonfed.federation.flower.node_log import KEPT_OUT, why_ended
from moonfed.federation.flower.processes import Child, free_port
from moonfed.federation.pki.folder_lock import alone
from moonfed.federation.pki.keys import write_private
from moonfed.federation.pki.site_folder import SitePlace
from moonfed.federation.protocol.rejection import printable
from moonfed.federation.protocol.request import Note
from moonfed.federation.site.diagnosis import aside, pause, trouble_at
from moonfed.federation.site.trainer import Site

POLL = 0.1
ACQUIRE = frozenset({"/flwr.proto.Runtime/AcquireTask"})
AGAIN = 2.0  # seconds before a node that ended is started anew
LOOK = 1.0  # seconds between two looks at what the node says
IN, RETRIES = "SuperNode ID:", "Connection attempt failed"  # as Flower's node puts it


class Worker:
    """Answers the messages that a Flower node has taken in."""

    def __init__(self, site: Site, port: int, secret: bytes, say: Callable[[str], None] = lambda line: None) -> None:
        self.site, self.address, self.say = site, f"127.0.0.1:{port}", say
        self.trouble = ""  # what was wrong last, and is not said twice in a row
        signed = SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=ACQUIRE)
        self.client = self._client(signed)

    def step(self) -> bool:
        """Answer one message, if there is one; False where there is none or the node does not answer."""
        try:
            got = self.client.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP]))
            if not got.token:
                return False
            self._answer(got.token)
            self.trouble = ""
            return True
        except httpx.HTTPError:
            return False
        except (Exception, RunNotRunningException) as error:  # a node that does not speak as agreed must not end a site
            trouble = printable(f"{type(error).__name__} {error}"[:400])
            if trouble != self.trouble:
                self.say(f"could not take or answer a message, trying again: {trouble}")
            self.trouble = trouble
            return False

    def _answer(self, token: str) -> None:
        client = self._client(RuntimeTokenHttpInterceptor(token))
        beat = HeartbeatSender(make_task_heartbeat_fn_http(client))
        beat.start()
        try:
            message, context = _pulled(client)
            push_message(client, reply_to(message, self.site), context)
            push_task_output(client, context, SubStatus.COMPLETED, "")
        finally:
            beat.stop()
            client.close()

    def _client(self, interceptor: Any) -> RuntimeHttpClient:
        version = RuntimeVersionHttpInterceptor(component_name="flwr-clientapp")
        return RuntimeHttpClient.from_server_address(self.address, True, None, [version, interceptor])


def _pulled(client: RuntimeHttpClient) -> tuple[Message, Context]:
    """Take a message from the node, which may still be receiving parts of it."""
    given = client.PullTaskInput(PullTaskInputRequest())
    TaskIdentity.task_id, TaskIdentity.run_id = given.task_id, given.run.run_id
    TaskIdentity.node_id = given.context.node_id
    context = context_from_proto(given.context)
    tree = client.PullMessages(PullAppMessagesRequest()).message_object_trees[0]
    node = Node(node_id=context.node_id)
    message = pull_and_inflate_object_from_tree(
        tree,
        make_pull_object_fn_protobuf(client.PullObject, node, context.run_id),
        make_confirm_message_received_fn_protobuf(client.ConfirmMessageReceived, node, context.run_id),
        return_type=Message,
        initial_backoff=POLL / 2,
        backoff_cap=1.0,
    )
    message.metadata.__dict__["_message_id"] = tree.object_id  # as Flower does: a message does not carry its own name
    return message, context


def reply_to(message: Message, site: Site) -> Message:
    """Answer a message."""
    note = note_of(message)
    answer = Note({"refused": note}, {}) if isinstance(note, str) else site.answer(note)
    return Message(content(answer), reply_to=message)


def join(folder: Path, say: Callable[[str], None], stopping: Callable[[], bool]) -> None:
    """Take part in a federation until told to stop; a connection that is lost is made anew."""
    place = SitePlace(folder)
    with alone(folder, "another moonfed site join"):
        _take_part(place, Site(place, say), say, stopping)


def _take_part(place: SitePlace, site: Site, say: Callable[[str], None], stopping: Callable[[], bool]) -> None:
    folder, logs = place.path, place.path / "logs"
    make_folder(logs)
    for old in folder.glob("node-*.secret"):  # of one that was killed; none is at work here now
        old.unlink(missing_ok=True)
    secret = folder / f"node-{secrets.token_hex(4)}.secret"
    write_private(secret, secrets.token_bytes(32))
    try:
        line = Line(place, say, stopping)
        while not stopping():
            if line.trouble():
                pause(AGAIN, stopping)
                continue
            port = free_port()
            node = Child(_node(place, port, secret), logs / "node.log", folder / "flower")
            try:
                line.hold(node, Worker(site, port, secret.read_bytes(), say))
            finally:
                node.stop()
            pause(AGAIN, stopping)
    finally:
        secret.unlink(missing_ok=True)


class Line:
    """A site's connection, of which its user is told whenever it changes, and once each time."""

    def __init__(self, place: SitePlace, say: Callable[[str], None], stopping: Callable[[], bool]) -> None:
        self.place, self.address, self.stopping = place, place.address(), stopping
        self.say, self.told, self.kept_out = say, "", 0

    def tell(self, line: str) -> None:
        """Say a line, unless it was the last one."""
        if line != self.told:
            self.say(line)
            self.told = line

    def trouble(self) -> bool:
        """Whether the coordinator cannot be spoken to; its user is told why."""
        found = aside(lambda: trouble_at(self.address, self.place.authority), self.stopping)
        if found is not None:
            self.tell(found)
        return found is not None

    def hold(self, node: Child, worker: Worker) -> None:
        """Answer what comes while a node lasts, and say why it ended."""
        lines: deque[str] = deque(maxlen=200)
        looked = time.monotonic()
        if not self.kept_out:
            self.tell(f"connecting to {self.address} as {self.place.settings.name}")
        while node.alive and not self.stopping():
            if worker.step():
                continue
            if time.monotonic() - looked > LOOK:
                new, looked = node.said(), time.monotonic()
                lines += new
                if any(IN in line for line in new):
                    self.tell(f"connected to {self.address}, waiting to be asked")
                    self.kept_out = 0
                elif any(RETRIES in line for line in new):
                    self.trouble()
            time.sleep(POLL)
        if self.stopping():
            return
        lines += node.said()
        why = why_ended(lines, self.address)
        self.kept_out += KEPT_OUT in "".join(lines)
        if self.kept_out != 1:  # a coordinator that is just starting registers its sites a moment after it listens
            self.tell(why)


def _node(place: SitePlace, port: int, secret: Path) -> list[str]:
    return [
        *("-m", "moonfed.federation.flower.node_process", "supernode", str(os.getpid())),
        *("--superlink", place.address(), "--root-certificates", str(place.authority)),
        *("--auth-supernode-private-key", str(place.private)),
        *("--isolation", "process", "--host", "127.0.0.1", "--port", str(port)),
        *("--superexec-auth-secret-file", str(secret)),
    ]
