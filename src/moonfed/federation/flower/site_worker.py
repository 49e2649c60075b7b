"""A site that takes part: a Flower node beside it receives messages, and this process answers them.

Flower starts one process per message, which runs the code that the coordinator sends. Here the moonfed that is
installed at the site answers: nothing is imported again, and no code from elsewhere is run.
"""

import logging
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
from moonfed.federation.flower.messages import message_content, read_message
from moonfed.federation.flower.node_log import KEY_REJECTED, explain_node_exit
from moonfed.federation.flower.processes import ChildProcess, free_port
from moonfed.federation.pki.folder_lock import locked_folder
from moonfed.federation.pki.keys import write_private
from moonfed.federation.pki.site_folder import SiteFolder
from moonfed.federation.protocol.rejection import sanitize
from moonfed.federation.protocol.request import REFUSED, Envelope
from moonfed.federation.site.diagnosis import call_unless_stopped, diagnose_connection, wait_unless_stopped
from moonfed.federation.site.trainer import SiteTrainer

logger = logging.getLogger(__name__)
POLL_SECONDS = 0.1
LOG_SECONDS = 1.0  # between two reads of the node's log
RETRY_SECONDS = 2.0  # before a node that ended is started again
ACQUIRE_METHODS = frozenset({"/flwr.proto.Runtime/AcquireTask"})
CONNECTED, RETRYING = "SuperNode ID:", "Connection attempt failed"  # in the log of Flower's node


class SiteWorker:
    """Answers the messages that a Flower node has received."""

    def __init__(self, trainer: SiteTrainer, port: int, secret: bytes) -> None:
        self.trainer, self.address = trainer, f"127.0.0.1:{port}"
        self.last_error = ""  # which is not logged twice in a row
        signed = SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=ACQUIRE_METHODS)
        self.client = self._client(signed)

    def step(self) -> bool:
        """Answer one message; False if there is none or the node does not answer."""
        try:
            acquired = self.client.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP]))
            if not acquired.token:
                return False
            self._answer(acquired.token)
            self.last_error = ""
            return True
        except httpx.HTTPError:
            return False
        except (Exception, RunNotRunningException) as error:  # an unexpected response of the node must not end a site
            detail = sanitize(f"{type(error).__name__} {error}"[:400])
            if detail != self.last_error:
                logger.warning("cannot receive or answer a message, trying again: %s", detail)
            self.last_error = detail
            return False

    def _answer(self, token: str) -> None:
        client = self._client(RuntimeTokenHttpInterceptor(token))
        heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(client))
        heartbeat.start()
        try:
            message, context = _pull_message(client)
            push_message(client, reply_to(message, self.trainer), context)
            push_task_output(client, context, SubStatus.COMPLETED, "")
        finally:
            heartbeat.stop()
            client.close()

    def _client(self, interceptor: Any) -> RuntimeHttpClient:
        version = RuntimeVersionHttpInterceptor(component_name="flwr-clientapp")
        return RuntimeHttpClient.from_server_address(self.address, True, None, [version, interceptor])


def _pull_message(client: RuntimeHttpClient) -> tuple[Message, Context]:
    """Pull a message from the node, which may still be receiving parts of it."""
    task = client.PullTaskInput(PullTaskInputRequest())
    TaskIdentity.task_id, TaskIdentity.run_id = task.task_id, task.run.run_id
    TaskIdentity.node_id = task.context.node_id
    context = context_from_proto(task.context)
    tree = client.PullMessages(PullAppMessagesRequest()).message_object_trees[0]
    node = Node(node_id=context.node_id)
    message = pull_and_inflate_object_from_tree(
        tree,
        make_pull_object_fn_protobuf(client.PullObject, node, context.run_id),
        make_confirm_message_received_fn_protobuf(client.ConfirmMessageReceived, node, context.run_id),
        return_type=Message,
        initial_backoff=POLL_SECONDS / 2,
        backoff_cap=1.0,
    )
    message.metadata.__dict__["_message_id"] = tree.object_id  # as Flower does: a message does not carry its own name
    return message, context


def reply_to(message: Message, trainer: SiteTrainer) -> Message:
    """Answer a message."""
    envelope = read_message(message)
    reply = Envelope({REFUSED: envelope}, {}) if isinstance(envelope, str) else trainer.answer(envelope)
    return Message(message_content(reply), reply_to=message)


def join_federation(path: Path, stopping: Callable[[], bool]) -> None:
    """Take part in a federation until stopped; reconnect when the connection is lost."""
    folder = SiteFolder(path)
    with locked_folder(path, "another moonfed site join"):
        _run_nodes(folder, SiteTrainer(folder), stopping)


def _run_nodes(folder: SiteFolder, trainer: SiteTrainer, stopping: Callable[[], bool]) -> None:
    logs = folder.path / "logs"
    make_folder(logs)
    for old in folder.path.glob("node-*.secret"):  # left by a process that was killed
        old.unlink(missing_ok=True)
    secret = folder.path / f"node-{secrets.token_hex(4)}.secret"
    write_private(secret, secrets.token_bytes(32))
    try:
        connection = SiteConnection(folder, stopping)
        while not stopping():
            if connection.report_problem():
                wait_unless_stopped(RETRY_SECONDS, stopping)
                continue
            port = free_port()
            node = ChildProcess(_node_arguments(folder, port, secret), logs / "node.log", folder.path / "flower")
            try:
                connection.serve(node, SiteWorker(trainer, port, secret.read_bytes()))
            finally:
                node.stop()
            wait_unless_stopped(RETRY_SECONDS, stopping)
    finally:
        secret.unlink(missing_ok=True)


class SiteConnection:
    """A site's connection to the coordinator; each change of its status is logged once."""

    def __init__(self, folder: SiteFolder, stopping: Callable[[], bool]) -> None:
        self.folder, self.address, self.stopping = folder, folder.address(), stopping
        self.last_status, self.key_rejections = "", 0

    def report(self, status: str) -> None:
        """Log a status, unless it is the last one that was logged."""
        if status != self.last_status:
            logger.info(status)
            self.last_status = status

    def report_problem(self) -> bool:
        """Check whether the coordinator can be reached; if not, log why and return True."""
        problem = call_unless_stopped(lambda: diagnose_connection(self.address, self.folder.authority), self.stopping)
        if problem is not None:
            self.report(problem)
        return problem is not None

    def serve(self, node: ChildProcess, worker: SiteWorker) -> None:
        """Answer messages while a node runs, and log why it ended."""
        lines: deque[str] = deque(maxlen=200)
        read_at = time.monotonic()
        if not self.key_rejections:
            self.report(f"connecting to {self.address} as {self.folder.settings.name}")
        while node.alive and not self.stopping():
            if worker.step():
                continue
            if time.monotonic() - read_at > LOG_SECONDS:
                new, read_at = node.new_lines(), time.monotonic()
                lines += new
                if any(CONNECTED in line for line in new):
                    self.report(f"connected to {self.address}, waiting for requests")
                    self.key_rejections = 0
                elif any(RETRYING in line for line in new):
                    self.report_problem()
            time.sleep(POLL_SECONDS)
        if self.stopping():
            return
        lines += node.new_lines()
        reason = explain_node_exit(lines, self.address)
        self.key_rejections += KEY_REJECTED in "".join(lines)
        if self.key_rejections != 1:  # a coordinator that is starting registers its sites a moment after it listens
            self.report(reason)


def _node_arguments(folder: SiteFolder, port: int, secret: Path) -> list[str]:
    return [
        *("-m", "moonfed.federation.flower.node_process", "supernode", str(os.getpid())),
        *("--superlink", folder.address(), "--root-certificates", str(folder.authority)),
        *("--auth-supernode-private-key", str(folder.private_key_path)),
        *("--isolation", "process", "--host", "127.0.0.1", "--port", str(port)),
        *("--superexec-auth-secret-file", str(secret)),
    ]
