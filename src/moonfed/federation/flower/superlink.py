"""The coordinator's connection: a SuperLink beside it, the allow-list registered, and a run whose server we are."""

import hashlib
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
from flwr.cli.build import build_fab_from_disk
from flwr.common.constant import SubStatus
from flwr.common.serde import fab_to_proto, run_from_proto
from flwr.proto.control_pb2 import RegisterNodeRequest, StartRunRequest
from flwr.proto.runtime_pb2 import AcquireTaskRequest, PullTaskInputRequest, PushTaskOutputRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor, SuperExecAuthHttpInterceptor
from flwr.supercore.run import RunNotRunningException
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid

from moonfed.core.errors import RunFailed
from moonfed.core.files import make_folder
from moonfed.federation.coordinator.audit_log import Book
from moonfed.federation.flower.messages import as_flower
from moonfed.federation.flower.processes import Child, await_port, free_port, listening
from moonfed.federation.flower.proxy import opened
from moonfed.federation.flower.site_worker import ACQUIRE
from moonfed.federation.pki.certificates import check_server_files
from moonfed.federation.pki.coordinator_folder import Home
from moonfed.federation.pki.folder_lock import alone
from moonfed.federation.pki.keys import write_private

NEAR = "127.0.0.1"
SECONDS = 60.0
ANSWER = 10.0  # seconds that SuperLink may be silent
logging.getLogger("flwr").setLevel(logging.ERROR)  # its warnings would go between the lines of our progress


@contextmanager
def superlink(home: Home, host: str, say: Callable[[str], None]) -> Iterator[HttpGrid]:
    """Run a SuperLink while the block lasts, be the server of a run on it, and open the door to it for the sites.

    SuperLink listens on this machine only. Only this process can take the run's server part: SuperLink hands tasks to
    who knows the secret.
    """
    files, (_, port) = home.files, home.address()
    check_server_files(files)
    logs = home.path / "logs"
    make_folder(logs)
    secret = home.path / f"link-{secrets.token_hex(4)}.secret"
    with alone(home.path, "another coordinator"):
        for old in home.path.glob("link-*.secret"):  # of one that was killed; none is at work here now
            old.unlink(missing_ok=True)
        write_private(secret, secrets.token_bytes(32))
        child: Child | None = None
        listener: socket.socket | None = None
        try:
            listener, inside = listening(host, port), free_port()
            child = Child(_superlink(home, inside, secret), logs / "superlink.log", home.path / "flower")
            await_port(NEAR, inside, child, "SuperLink")
            book = Book(logs / "door.log", say)
            with (
                _serving(home, f"{NEAR}:{inside}", secret.read_bytes()) as grid,
                opened(listener, files, inside, home.allowed(), book),
            ):
                yield grid
        except (httpx.HTTPError, RunNotRunningException) as error:
            said = f"{type(error).__name__} {error}".splitlines()[0]
            raise RunFailed(f"SuperLink does not answer ({said}), see {logs}; go on with --resume") from None
        finally:
            if listener is not None:
                listener.close()
            if child is not None:
                child.stop()
            secret.unlink(missing_ok=True)


@contextmanager
def _serving(home: Home, address: str, secret: bytes) -> Iterator[HttpGrid]:
    authority = home.files.authority.read_bytes()
    version = RuntimeVersionHttpInterceptor(component_name="flwr-serverapp")
    with ControlHttpClient.from_server_address(address, False, authority, [version]) as control:
        for name, key in home.allowed().items():
            control.RegisterNode(RegisterNodeRequest(public_key=as_flower(key), name=name))
        bundle = build_fab_from_disk(home.path / "app")
        started = control.StartRun(StartRunRequest(fab=fab_to_proto(_fab(bundle))))
    signed = SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=ACQUIRE)
    with RuntimeHttpClient.from_server_address(address, False, authority, [version, signed]) as client:
        token = _acquire(client, started.run_id)
    grid = HttpGrid(address, False, authority, token=token)
    again = grid._retry_invoker  # pyright: ignore[reportPrivateUsage]
    again.max_time = ANSWER  # Flower would try for ever
    own = grid._runtime_client  # pyright: ignore[reportPrivateUsage]
    beat = HeartbeatSender(make_task_heartbeat_fn_http(own))
    beat.start()
    status = SubStatus.FAILED
    try:
        given = own.PullTaskInput(PullTaskInputRequest())
        TaskIdentity.task_id, TaskIdentity.run_id = given.task_id, given.run.run_id
        TaskIdentity.node_id = given.context.node_id
        grid.set_run(run_from_proto(given.run))
        yield grid
        status = SubStatus.COMPLETED
    finally:
        again.max_tries = 1
        with suppress(httpx.HTTPError):
            own.PushTaskOutput(PushTaskOutputRequest(sub_status=status, details=""))
        beat.stop()
        grid.close()


def _acquire(client: RuntimeHttpClient, run: int) -> str:
    """Take the server part of our run; that of another run, whoever started it, is left to die."""
    ends = time.monotonic() + SECONDS
    while time.monotonic() < ends:
        got = client.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP]))
        if got.token and got.task.run_id == run:
            return got.token
        time.sleep(0.05)
    raise RunFailed(f"SuperLink did not hand out the run within {SECONDS:.0f} s")


def _fab(content: bytes) -> Fab:
    return Fab(hashlib.sha256(content).hexdigest(), content, {})


def _superlink(home: Home, port: int, secret: Path) -> list[str]:
    files = home.files
    return [
        *("-m", "moonfed.federation.flower.node_process", "superlink", str(os.getpid())),
        *("--ssl-ca-certfile", str(files.authority), "--ssl-certfile", str(files.certificate)),
        *("--ssl-keyfile", str(files.key), "--enable-supernode-auth"),
        *("--host", NEAR, "--port", str(port), "--disable-runtime-dependency-installation"),
        *("--isolation", "process", "--superexec-auth-secret-file", str(secret)),
    ]
