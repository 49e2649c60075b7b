"""Without a site's key nothing can be done at the coordinator's port, and the federation continues."""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import httpx
import pytest
from federations import Federation, processes, simulated, weights
from flwr.common.serde import fab_to_proto
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListRunsRequest,
    RegisterNodeRequest,
    StartRunRequest,
    StopRunRequest,
    UnregisterNodeRequest,
)
from flwr.proto.fleet_pb2 import ActivateNodeRequest, RegisterNodeFleetRequest
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
from flwr.supercore.protobuf.client import ProtobufClient
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

Client = TypeVar("Client", bound=ProtobufClient)
LONG = ("--rounds", "3", "--epochs", "12", "--algorithm", "fedavg")


def test_without_a_key_nothing_can_be_listed_registered_removed_or_started(tmp_path: Path):
    made = Federation(tmp_path, sites=2)
    try:
        for name in made.names:
            made.join(name)
        coordinator = made.start(*LONG)
        coordinator.await_word("round 1/3", 90)
        for status, call in attempts(f"https://127.0.0.1:{made.port}"):
            with pytest.raises(httpx.HTTPStatusError) as error:
                call()
            assert error.value.response.status_code == status
        (link,) = [pid for pid, words in processes(tmp_path) if "flower.node_process superlink" in words]
        assert listens(link) == {"127.0.0.1"}
        expected = simulated(tmp_path / "here", 2, *LONG)
        answer = coordinator.end(120)
        assert answer.code == 0, answer
        assert weights(tmp_path / "run") == expected
        assert not (tmp_path / "run" / "refused.jsonl").exists()
        assert answer.err.count("rejected a request from 127.0.0.1") == 2  # a path, a key
        assert answer.err.count("renew it with moonfed federation renew") == 1  # its certificate is valid for two days
        written = (made.home / "logs" / "audit.log").read_text()
        for path in ("list-nodes", "register-node", "unregister-node", "start-run", "stop-run", "acquire-task"):
            assert path in written
    finally:
        made.end()


def test_a_copy_of_a_sites_folder_that_joins_too_is_reported(tmp_path: Path):
    made = Federation(tmp_path, sites=1)
    try:
        shutil.copytree(tmp_path / "site-0", tmp_path / "copy")
        made.join("site-0")
        made.join("copy")
        coordinator = made.start("--rounds", "40", "--epochs", "1")
        coordinator.await_word("two processes are using site-0's key", 120)
        coordinator.send(signal.SIGINT)
        answer = coordinator.end(60)
        assert answer.err.count("two processes are using") == 1
    finally:
        made.end()


def attempts(server: str) -> list[tuple[int, Callable[[], object]]]:
    """Calls that somebody with a key of their own may try, without checking the certificate."""
    private, public = generate_key_pairs()
    own, key = NodeAuthHttpInterceptor(private, public), public_key_to_bytes(public)

    def client(kind: type[Client]) -> Client:
        return kind(server, interceptors=[RuntimeVersionHttpInterceptor("flwr-cli"), own], verify=False)

    control, fleet, runtime = client(ControlHttpClient), client(FleetHttpClient), client(RuntimeHttpClient)
    app = fab_to_proto(Fab("0" * 64, b"an app", {}))
    return [
        (404, lambda: control.ListNodes(ListNodesRequest())),
        (404, lambda: control.ListRuns(ListRunsRequest())),
        (404, lambda: control.RegisterNode(RegisterNodeRequest(public_key=key, name="mallory"))),
        (404, lambda: control.UnregisterNode(UnregisterNodeRequest(node_id=1))),
        (404, lambda: control.StartRun(StartRunRequest(fab=app))),
        (404, lambda: control.StopRun(StopRunRequest(run_id=1))),
        (404, lambda: runtime.AcquireTask(AcquireTaskRequest())),
        (404, lambda: fleet.RegisterNode(RegisterNodeFleetRequest(public_key=key))),
        (412, lambda: fleet.ActivateNode(ActivateNodeRequest(public_key=key, heartbeat_interval=30))),
    ]


def listens(pid: int) -> set[str]:
    """The addresses on which a process listens."""
    own = {os.readlink(handle) for handle in Path(f"/proc/{pid}/fd").iterdir() if handle.is_symlink()}
    found: set[str] = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in own:
                address = bytes.fromhex(words[1].split(":")[0])
                found.add(".".join(map(str, reversed(address))) if len(address) == 4 else words[1])
    return found
