"""Where the other side does not speak as agreed, nobody waits for ever, and nothing ends in a traceback."""

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
from line import World

from moonfed.core.errors import RunFailed
from moonfed.federation.flower import transport as post
from moonfed.federation.flower.site_worker import Worker
from moonfed.federation.flower.transport import FEW, PIECE, NextTurn, Parcel, speaking
from moonfed.federation.site.trainer import Site

LIMIT = 4 << 20


def grid(part: bytes = b"x", asked: list[str] | None = None) -> Any:
    """Flower's side of the coordinator's line: every part is there."""

    def pull(request: Any) -> PullObjectResponse:
        (asked if asked is not None else []).append(request.object_id)
        return PullObjectResponse(object_found=True, object_available=True, object_content=part)

    client = SimpleNamespace(PullObject=pull, ConfirmMessageReceived=lambda request: None)
    return SimpleNamespace(_runtime_client=client, run=SimpleNamespace(run_id=1), node=None)


def tree(parts: int) -> ObjectTree:
    return ObjectTree(object_id="whole", children=[ObjectTree(object_id=str(i)) for i in range(parts - 1)])


def test_a_reply_of_more_parts_than_its_size_can_have_is_not_taken():
    most, asked = FEW + LIMIT // PIECE, list[str]()
    said = Parcel("whole", tree(most + 1), LIMIT).look(grid(asked=asked))
    assert said == f"a reply of more than {most} parts"
    assert not asked
    said = Parcel("whole", tree(most), LIMIT).look(grid(asked=asked))
    assert isinstance(said, str)
    assert said.startswith("a message in another form")
    assert len(asked) == most


def test_a_reply_far_larger_than_the_model_is_not_taken():
    asked: list[str] = []
    assert Parcel("whole", tree(50), LIMIT).look(grid(bytes(1 << 20), asked)) == "a reply far larger than the model"
    assert len(asked) == 5


def test_a_reply_of_many_parts_gives_the_others_their_turn_and_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []
    parcel, line = Parcel("whole", tree(100), LIMIT), grid(asked=asked)
    monkeypatch.setattr(post, "TURN", -1.0)
    for _ in range(3):
        with pytest.raises(NextTurn):
            parcel.look(line)
    monkeypatch.setattr(post, "TURN", 60.0)
    assert isinstance(parcel.look(line), str)
    assert len(asked) == len(set(asked)) == 100


@pytest.mark.parametrize(
    "error", [ValueError("Invalid protobuf response payload"), RunNotRunningException(), IndexError()]
)
def test_what_flower_raises_ends_the_run_in_a_line(error: BaseException):
    with (
        pytest.raises(RunFailed, match=r"SuperLink does not speak as agreed \(\w+.*\); go on with --resume"),
        speaking(),
    ):
        raise error


def test_a_lost_connection_and_ctrl_c_stay_what_they_are():
    for error in (httpx.ConnectError("gone"), KeyboardInterrupt()):
        with pytest.raises(type(error)), speaking():
            raise error


class Babbler(BaseHTTPRequestHandler):
    """A node that answers everything with the same nonsense."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "7")
        self.end_headers()
        self.wfile.write(b"\xff\x1b[2J\xff\n")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def babbler() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Babbler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def test_a_site_survives_a_node_that_babbles_and_says_so_once(babbler: int, tmp_path: Path):
    said: list[str] = []
    worker = Worker(Site(World(tmp_path).places["s0"]), babbler, b"x" * 32, said.append)
    try:
        assert not any(worker.step() for _ in range(5))
    finally:
        worker.client.close()
    (line,) = said
    assert line.startswith("could not take or answer a message, trying again: ValueError")
    assert line.isprintable()


def test_a_site_whose_node_is_gone_waits_in_silence(tmp_path: Path):
    said: list[str] = []
    worker = Worker(Site(World(tmp_path).places["s0"]), 1, b"x" * 32, said.append)
    assert not worker.step()
    worker.client.close()
    assert not said
