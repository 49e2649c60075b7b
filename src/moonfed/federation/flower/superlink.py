"""The coordinator's SuperLink session: a local SuperLink, the sites registered, and a run whose server we are."""

import hashlib
import logging
import os
import secrets
import socket
import time
from collections.abc import Iterator
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
from moonfed.federation.coordinator.audit_log import AuditLog
from moonfed.federation.flower.app_bundle import write_app_bundle
from moonfed.federation.flower.messages import flower_key_bytes
from moonfed.federation.flower.processes import ChildProcess, free_port, listen, wait_for_port
from moonfed.federation.flower.proxy import Proxy, running_proxy
from moonfed.federation.flower.quota import UploadQuota
from moonfed.federation.flower.site_worker import ACQUIRE_METHODS
from moonfed.federation.pki.certificates import check_server_files
from moonfed.federation.pki.coordinator_folder import CoordinatorFolder
from moonfed.federation.pki.folder_lock import locked_folder
from moonfed.federation.pki.keys import write_private

LOOPBACK = "127.0.0.1"
ACQUIRE_SECONDS = 60.0
MAX_RETRY_SECONDS = 10.0  # for which calls to SuperLink are retried
logging.getLogger("flwr").setLevel(logging.ERROR)  # its warnings would interrupt the progress display


@contextmanager
def superlink_session(folder: CoordinatorFolder, host: str) -> Iterator[tuple[HttpGrid, UploadQuota]]:
    """Run a SuperLink and the proxy in front of it while the block runs, and be the server of a run on it.

    The block gets the connection to SuperLink, and the proxy's quota of uploads.

    SuperLink listens on this machine only. Only this process can take the run's ServerApp task, since SuperLink hands
    tasks to those who know the secret.
    """
    files, (_, port) = folder.server_files, folder.address()
    check_server_files(files)
    logs = folder.path / "logs"
    make_folder(logs)
    secret = folder.path / f"link-{secrets.token_hex(4)}.secret"
    with locked_folder(folder.path, "another coordinator"):
        for old in folder.path.glob("link-*.secret"):  # left by a coordinator that was killed
            old.unlink(missing_ok=True)
        write_private(secret, secrets.token_bytes(32))
        child: ChildProcess | None = None
        listener: socket.socket | None = None
        try:
            listener, inside = listen(host, port), free_port()
            child = ChildProcess(
                _superlink_arguments(folder, inside, secret), logs / "superlink.log", folder.path / "flower"
            )
            wait_for_port(LOOPBACK, inside, child, "SuperLink")
            proxy = Proxy(files, inside, folder.allow_list(), AuditLog(logs / "audit.log"))
            with (
                _server_task(folder, f"{LOOPBACK}:{inside}", secret.read_bytes()) as grid,
                running_proxy(listener, proxy),
            ):
                yield grid, proxy.quota
        except (httpx.HTTPError, RunNotRunningException) as error:
            detail = f"{type(error).__name__} {error}".splitlines()[0]
            raise RunFailed(f"SuperLink does not answer ({detail}), see {logs}; resume with --resume") from None
        finally:
            if listener is not None:
                listener.close()
            if child is not None:
                child.stop()
            secret.unlink(missing_ok=True)


@contextmanager
def _server_task(folder: CoordinatorFolder, address: str, secret: bytes) -> Iterator[HttpGrid]:
    """Register the sites, start a run, and hold its ServerApp task while the block runs."""
    authority = folder.server_files.authority.read_bytes()
    version = RuntimeVersionHttpInterceptor(component_name="flwr-serverapp")
    with ControlHttpClient.from_server_address(address, False, authority, [version]) as control:
        for name, key in folder.allow_list().items():
            control.RegisterNode(RegisterNodeRequest(public_key=flower_key_bytes(key), name=name))
        write_app_bundle(folder.path / "app")  # also in a folder that an earlier version made
        bundle = build_fab_from_disk(folder.path / "app")
        fab = Fab(hashlib.sha256(bundle).hexdigest(), bundle, {})
        started = control.StartRun(StartRunRequest(fab=fab_to_proto(fab)))
    signed = SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=ACQUIRE_METHODS)
    with RuntimeHttpClient.from_server_address(address, False, authority, [version, signed]) as client:
        token = _acquire_token(client, started.run_id)
    grid = HttpGrid(address, False, authority, token=token)
    retries = grid._retry_invoker  # pyright: ignore[reportPrivateUsage]
    retries.max_time = MAX_RETRY_SECONDS  # Flower would retry for ever
    runtime = grid._runtime_client  # pyright: ignore[reportPrivateUsage]
    heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(runtime))
    heartbeat.start()
    status = SubStatus.FAILED
    try:
        task = runtime.PullTaskInput(PullTaskInputRequest())
        TaskIdentity.task_id, TaskIdentity.run_id = task.task_id, task.run.run_id
        TaskIdentity.node_id = task.context.node_id
        grid.set_run(run_from_proto(task.run))
        yield grid
        status = SubStatus.COMPLETED
    finally:
        retries.max_tries = 1
        with suppress(httpx.HTTPError):
            runtime.PushTaskOutput(PushTaskOutputRequest(sub_status=status, details=""))
        heartbeat.stop()
        grid.close()


def _acquire_token(client: RuntimeHttpClient, run: int) -> str:
    """Take the ServerApp task of our run; a task of another run is not used."""
    deadline = time.monotonic() + ACQUIRE_SECONDS
    while time.monotonic() < deadline:
        acquired = client.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP]))
        if acquired.token and acquired.task.run_id == run:
            return acquired.token
        time.sleep(0.05)
    raise RunFailed(f"SuperLink did not hand out the run within {ACQUIRE_SECONDS:.0f} s; start again")


def _superlink_arguments(folder: CoordinatorFolder, port: int, secret: Path) -> list[str]:
    files = folder.server_files
    return [
        *("-m", "moonfed.federation.flower.node_process", "superlink", str(os.getpid())),
        *("--ssl-ca-certfile", str(files.authority), "--ssl-certfile", str(files.certificate)),
        *("--ssl-keyfile", str(files.key), "--enable-supernode-auth"),
        *("--host", LOOPBACK, "--port", str(port), "--disable-runtime-dependency-installation"),
        *("--isolation", "process", "--superexec-auth-secret-file", str(secret)),
    ]
