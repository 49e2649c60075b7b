"""The door on real sockets: what a site needs goes through as it is, and nothing else reaches the server behind it."""

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from doors import LIMITS, NORTH, PULL, SOUTH, STRANGER, Scene, head, read, signed
from flwr.proto.fleet_pb2 import PushMessagesRequest

from moonfed.federation.flower.node_log import why_ended
from moonfed.federation.flower.processes import listening
from moonfed.federation.flower.proxy import PATHS, Limits
from moonfed.federation.pki.certificates import ServerFiles, make_authority, make_server_certificate


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> ServerFiles:
    folder = tmp_path_factory.mktemp("keys")
    make_authority(folder, 1)
    return make_server_certificate(folder, ("127.0.0.1",), 1)


@pytest.fixture
def scene(files: ServerFiles, tmp_path: Path) -> Iterator[Scene]:
    with Scene(tmp_path, files, LIMITS, []).open() as scene:
        yield scene


def test_what_a_site_needs_goes_through_as_it_is_and_so_does_the_answer(scene: Scene):
    line, large = scene.visitor(), bytes(range(256)) * 4000
    plain = sorted(path for path in PATHS if b"push" not in path)  # what is handed in is looked into: test_cargo
    for path, body in zip(plain, [b"", b"x", large, b"teapot"] * 3, strict=False):
        headers = signed(NORTH)
        line.request("POST", path.decode(), body, headers | {"x-forwarded-for": "9.9.9.9", "cookie": "a"})
        answer = line.getresponse()
        assert (answer.status, answer.read()) == (418 if body == b"teapot" else 200, body)
        assert answer.headers["flwr-version"] == "1.41"
        where, got, heard = scene.heard.pop()
        assert (where.encode(), heard) == (path, body)
        assert headers.items() <= got.items()
        assert not {"x-forwarded-for", "cookie"} & got.keys()
    line.close()
    assert not scene.said
    assert not scene.log.exists()


@pytest.mark.parametrize(
    "path",
    [
        "/v1/control/list-nodes",
        "/v1/control/start-run",
        "/v1/runtime/acquire-task",
        "/v1/fleet/register-node",
        "/v1/fleet/unregister-node",
        "/v1/fleet/../control/list-nodes",
        "/v1/fleet/%2e%2e/control/list-nodes",
        "/v1/fleet/pull-messages?to=/v1/control/list-nodes",
        "/v1/fleet/pull-messages/",
        "//v1/fleet/pull-messages",
        "http://127.0.0.1/v1/control/list-nodes",
        "/health",
        "/docs",
        "/",
    ],
)
def test_nothing_else_reaches_the_server_though_a_site_may_ask(scene: Scene, path: str):
    status, said = scene.ask(path, signed(NORTH), b"some words")
    assert status == 404
    assert b"which no site needs" in said
    assert scene.ask(PULL, signed(NORTH), method="GET")[0] == 404
    assert not scene.heard


def test_a_key_that_is_not_listed_or_cannot_sign_opens_nothing(scene: Scene):
    unsigned = {k: v for k, v in signed(NORTH).items() if k != "flwr-signature"}
    late = signed(NORTH) | {"flwr-timestamp": signed(NORTH)["flwr-timestamp"]}
    for headers in (
        {},
        signed(STRANGER),
        signed(STRANGER, shown=NORTH),
        signed(SOUTH, shown=NORTH),
        unsigned,
        unsigned | {"flwr-signature": "no base64!"},
        late,
    ):
        assert scene.ask(PULL, headers)[0] == 412
    assert not scene.heard
    assert scene.ask(PULL, signed(SOUTH))[0] == 200


def test_a_site_whose_clock_is_wrong_is_told_so(scene: Scene):
    for fast, said in ((60, b"the clock of north is 60 s ahead"), (-400, b"the clock of north is 400 s behind")):
        status, answer = scene.ask(PULL, signed(NORTH, fast=fast))
        assert status == 412
        assert said in answer
    assert why_ended([f"ERROR: [code: 2004] {json.loads(answer)['detail']}"], "10.0.0.1:9443") == (
        "the coordinator at 10.0.0.1:9443 does not let this site in: "
        "the clock of north is 400 s behind the coordinator's; set it right"
    )
    assert scene.ask(PULL, signed(NORTH, fast=-200))[0] == 200, "as Flower has it"


def test_what_a_site_hands_in_is_looked_into(scene: Scene):
    for path in ("/v1/fleet/push-messages", "/v1/fleet/push-object"):
        status, said = scene.ask(path, signed(NORTH), b"some words")
        assert status == 413
        assert b"north hands in something in another form" in said
    assert not scene.heard
    assert scene.ask("/v1/fleet/push-messages", signed(NORTH), PushMessagesRequest().SerializeToString())[0] == 200


def test_a_request_that_hides_another_is_refused_or_is_one_body(scene: Scene):
    hidden = head("/v1/control/list-nodes", {}, "content-length: 0")
    length = f"content-length: {len(hidden)}"
    for lines in (
        (length, "transfer-encoding: chunked"),
        (length, "content-length: 0"),
        ("transfer-encoding: chunked, identity",),
        ("transfer-encoding : chunked",),
        ("content-length: +5",),
        (f"flwr-signature: {signed(SOUTH)['flwr-signature']}", length),
    ):
        answer = scene.say(head(PULL, signed(NORTH), *lines) + b"0\r\n\r\n" + hidden)
        first, *more = answer.split(b"HTTP/1.1 ")[1:]
        assert first[:3] in (b"400", b"501"), (lines, answer)
        assert not more
    assert not scene.heard
    bare = head(PULL, signed(NORTH), length).replace(b"\r\n", b"\n")
    for words in (head(PULL, signed(NORTH), length), bare):
        answer = scene.say(words + hidden + hidden)
        assert [part[:3] for part in answer.split(b"HTTP/1.1 ") if part[:3].isdigit()] == [b"200", b"404"]
    assert [(path, body) for path, _, body in scene.heard] == [(PULL, hidden)] * 2


def test_a_body_beyond_the_bound_is_not_taken(scene: Scene):
    over = LIMITS.body + 1
    for words in (
        head(PULL, signed(NORTH), f"content-length: {over}") + b"x" * over,
        head(PULL, signed(NORTH) | {"x": "y" * 20_000}),
    ):
        assert scene.say(words).startswith(b"HTTP/1.1 413")
    assert not scene.heard
    assert scene.ask(PULL, signed(NORTH), b"x" * LIMITS.body)[0] == 200


def test_who_is_silent_or_slow_is_hung_up_on(scene: Scene):
    began = time.monotonic()
    assert scene.say(b"") == b""
    assert scene.say(b"POST /v1/fl") == b""
    assert scene.say(head(PULL, signed(NORTH), "content-length: 10") + b"half") == b""
    whole = head(PULL, signed(NORTH), "content-length: 0")
    assert scene.say(whole).startswith(b"HTTP/1.1 200")  # and then idle
    with scene.line() as line:
        line.sendall(head(PULL, signed(NORTH), "content-length: 100"))
        with contextlib.suppress(OSError):
            for _ in range(30):
                line.sendall(b"x")
                time.sleep(0.1)
        assert line.recv(100) == b""
    with socket.create_connection(("127.0.0.1", scene.port), 10) as bare:
        assert bare.recv(100) == b""  # no handshake
    assert 4 < time.monotonic() - began < 14


def test_a_crowd_of_strangers_makes_room_for_a_site_and_a_sites_own_crowd_is_bounded(scene: Scene):
    with contextlib.ExitStack() as stack:
        strangers = [stack.enter_context(scene.line()) for _ in range(LIMITS.strangers)]
        assert scene.ask(PULL, signed(NORTH))[0] == 200
        assert strangers[0].recv(10) == b"", "the oldest had to go"
        own = [scene.visitor() for _ in range(LIMITS.each + 1)]
        answers: list[int] = []
        for line in own:
            line.request("POST", PULL, b"", signed(NORTH))
            answers.append(read(line)[0])
        assert answers == [200] * LIMITS.each + [503]
        assert scene.ask(PULL, signed(SOUTH))[0] == 200
        own.pop(0).close()
        _await(lambda: scene.ask(PULL, signed(NORTH))[0] == 200)
        for line in own:
            line.close()


def test_a_site_that_polls_from_two_processes_is_noticed_and_one_that_was_restarted_is_not(scene: Scene):
    def poll(key: EllipticCurvePrivateKey, process: str) -> None:
        assert scene.ask(PULL, signed(key) | {"moonfed-process": process})[0] == 200

    for process in ("a", "a", "b", "b", "c"):
        poll(SOUTH, process)
    assert not scene.said
    poll(NORTH, "a")
    knock = signed(NORTH) | {"moonfed-process": "b"}
    assert scene.ask("/v1/fleet/activate-node", knock)[0] == 200
    assert not scene.said
    for process in ("a", "b", "a"):
        poll(NORTH, process)
    assert scene.said == ["north answers from two places: its key is in use twice, by a copy of its folder for one"]
    assert all("moonfed-process" not in headers for _, headers, _ in scene.heard)


def test_who_does_not_speak_tls_or_distrusts_the_certificate_gets_nothing(scene: Scene):
    with socket.create_connection(("127.0.0.1", scene.port), 10) as bare:
        bare.sendall(head(PULL, signed(NORTH), "content-length: 0"))
        with contextlib.suppress(ConnectionError):
            assert b"HTTP" not in bare.recv(1000)
    with (
        socket.create_connection(("127.0.0.1", scene.port), 10) as bare,
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        ssl.create_default_context().wrap_socket(bare, server_hostname="127.0.0.1")
    assert not scene.heard


def test_each_kind_of_refusal_is_said_once_and_the_log_of_them_is_bounded(scene: Scene):
    assert b"400" in scene.say(b"\x1b[2J all is well\r\n\r\n")
    for i in range(250):
        with scene.line() as line:
            line.sendall(head(f"/v1/control/{i}", {}, "content-length: 0"))
            assert b"404" in line.recv(1000)
    for _ in range(2):
        assert scene.ask(PULL, {})[0] == 412
    assert [line.split(": ")[1] for line in scene.said] == ["form", "path"]  # there was no more room for the key
    written = scene.log.read_text().splitlines()
    assert len(written) == 200
    assert all(line.isprintable() for line in written)


def test_a_server_that_is_gone_is_a_reason_to_try_again(scene: Scene):
    assert scene.ask(PULL, signed(NORTH))[0] == 200
    scene.server.shutdown()
    scene.server.server_close()
    time.sleep(2.1)  # lines are kept open for two seconds
    assert scene.ask(PULL, signed(NORTH))[0] == 502


def test_a_door_that_closes_hangs_up_and_leaves_its_port(files: ServerFiles, tmp_path: Path):
    scene = Scene(tmp_path, files, Limits(), [])
    with scene.open():
        line = scene.visitor()
        line.request("POST", PULL, b"", signed(NORTH))
        assert read(line)[0] == 200
    assert line.sock.recv(1) == b""
    line.close()
    listening("127.0.0.1", scene.port, 1).close()
    assert not [thread for thread in threading.enumerate() if thread.name == "door"]


def _await(true: Any, seconds: float = 5) -> None:
    ends = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < ends
        time.sleep(0.05)
