"""Unexpected responses of Flower's processes: nothing waits for ever, and nothing ends in a traceback."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from flwr.proto.message_pb2 import ObjectTree, PullObjectResponse
from flwr.supercore.run import RunNotRunningException
from in_process import World

from moonfed.core.errors import RunFailed
from moonfed.federation.flower import transport
from moonfed.federation.flower.site_worker import SiteWorker
from moonfed.federation.flower.transport import MIN_PART_BYTES, SMALL_PARTS, PartialReply, PartsPending, flower_errors
from moonfed.federation.site.trainer import SiteTrainer

LIMIT = 4 << 20


def grid(part: bytes = b"x", asked: list[str] | None = None) -> Any:
    """A stand-in for Flower's grid on which every part is available."""

    def pull(request: Any) -> PullObjectResponse:
        (asked if asked is not None else []).append(request.object_id)
        return PullObjectResponse(object_found=True, object_available=True, object_content=part)

    client = SimpleNamespace(PullObject=pull, ConfirmMessageReceived=lambda request: None)
    return SimpleNamespace(_runtime_client=client, run=SimpleNamespace(run_id=1), node=None)


def tree(parts: int) -> ObjectTree:
    return ObjectTree(object_id="whole", children=[ObjectTree(object_id=str(i)) for i in range(parts - 1)])


def test_a_reply_with_more_parts_than_its_size_allows_is_rejected():
    most, asked = SMALL_PARTS + LIMIT // MIN_PART_BYTES, list[str]()
    said = PartialReply("whole", tree(most + 1), LIMIT).poll(grid(asked=asked))
    assert said == f"a reply of more than {most} parts"
    assert not asked
    said = PartialReply("whole", tree(most), LIMIT).poll(grid(asked=asked))
    assert isinstance(said, str)
    assert said.startswith("malformed message")
    assert len(asked) == most


def test_a_reply_far_larger_than_the_model_is_rejected():
    asked: list[str] = []
    assert (
        PartialReply("whole", tree(50), LIMIT).poll(grid(bytes(1 << 20), asked)) == "a reply far larger than the model"
    )
    assert len(asked) == 5


def test_a_reply_of_many_parts_lets_others_have_their_turn_and_continues_later(monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []
    reply, flower = PartialReply("whole", tree(100), LIMIT), grid(asked=asked)
    monkeypatch.setattr(transport, "TURN_SECONDS", -1.0)
    for _ in range(3):
        with pytest.raises(PartsPending):
            reply.poll(flower)
    monkeypatch.setattr(transport, "TURN_SECONDS", 60.0)
    assert isinstance(reply.poll(flower), str)
    assert len(asked) == len(set(asked)) == 100


@pytest.mark.parametrize(
    "error", [ValueError("Invalid protobuf response payload"), RunNotRunningException(), IndexError()]
)
def test_an_error_of_flower_ends_the_run_with_one_line(error: BaseException):
    with (
        pytest.raises(RunFailed, match=r"unexpected response of SuperLink \(\w+.*\); resume with --resume"),
        flower_errors(),
    ):
        raise error


def test_a_lost_connection_and_ctrl_c_are_passed_on():
    for error in (httpx.ConnectError("gone"), KeyboardInterrupt()):
        with pytest.raises(type(error)), flower_errors():
            raise error


class GarbageNode(BaseHTTPRequestHandler):
    """A node that answers everything with the same garbage."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "7")
        self.end_headers()
        self.wfile.write(b"\xff\x1b[2J\xff\n")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def garbage_node() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), GarbageNode) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def test_a_site_survives_a_node_that_sends_garbage_and_logs_it_once(
    garbage_node: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    worker = SiteWorker(SiteTrainer(World(tmp_path).folders["s0"]), garbage_node, b"x" * 32)
    try:
        assert not any(worker.step() for _ in range(5))
    finally:
        worker.client.close()
    (line,) = caplog.messages
    assert line.startswith("cannot receive or answer a message, trying again: ValueError")
    assert line.isprintable()


def test_a_site_whose_node_is_gone_logs_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    worker = SiteWorker(SiteTrainer(World(tmp_path).folders["s0"]), 1, b"x" * 32)
    assert not worker.step()
    worker.client.close()
    assert not caplog.messages
