"""The proxy on real sockets: requests that sites need are forwarded unchanged, nothing else reaches the server."""

import contextlib
import json
import logging
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from flwr.proto.fleet_pb2 import PushMessagesRequest
from proxies import LIMITS, NORTH, PULL, SOUTH, STRANGER, Scene, head, read, signed

from moonfed.federation.flower.authentication import PATHS
from moonfed.federation.flower.node_log import explain_node_exit
from moonfed.federation.flower.processes import listen
from moonfed.federation.flower.proxy import ProxyLimits
from moonfed.federation.pki.certificates import ServerFiles, make_authority, make_server_certificate


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> ServerFiles:
    folder = tmp_path_factory.mktemp("keys")
    make_authority(folder, 1)
    return make_server_certificate(folder, ("127.0.0.1",), 1)


@pytest.fixture
def scene(files: ServerFiles, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Scene]:
    caplog.set_level(logging.INFO, "moonfed")
    with Scene(tmp_path, files, LIMITS).open() as scene:
        yield scene


def test_what_sites_need_is_forwarded_unchanged_and_so_is_the_response(scene: Scene, caplog: pytest.LogCaptureFixture):
    line, large = scene.client(), bytes(range(256)) * 4000
    plain = sorted(path for path in PATHS if b"push" not in path)  # uploads are checked: test_upload_quota
    for path, body in zip(plain, [b"", b"x", large, b"teapot"] * 3, strict=False):
        headers = signed(NORTH)
        line.request("POST", path.decode(), body, headers | {"x-forwarded-for": "9.9.9.9", "cookie": "a"})
        answer = line.getresponse()
        assert (answer.status, answer.read()) == (418 if body == b"teapot" else 200, body)
        assert answer.headers["flwr-version"] == "1.41"
        where, got, content = scene.received.pop()
        assert (where.encode(), content) == (path, body)
        assert headers.items() <= got.items()
        assert not {"x-forwarded-for", "cookie"} & got.keys()
    line.close()
    assert not caplog.messages
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
def test_other_paths_and_methods_are_not_forwarded_even_for_a_site(scene: Scene, path: str):
    status, said = scene.post(path, signed(NORTH), b"some words")
    assert status == 404
    assert b"is not a path that sites use" in said
    assert scene.post(PULL, signed(NORTH), method="GET")[0] == 404
    assert not scene.received


def test_an_unknown_key_or_an_invalid_signature_is_rejected(scene: Scene):
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
        assert scene.post(PULL, headers)[0] == 412
    assert not scene.received
    assert scene.post(PULL, signed(SOUTH))[0] == 200


def test_a_site_whose_clock_is_wrong_is_told_by_how_much(scene: Scene):
    for fast, said in ((60, b"the clock of north is 60 s ahead"), (-400, b"the clock of north is 400 s behind")):
        status, answer = scene.post(PULL, signed(NORTH, fast=fast))
        assert status == 412
        assert said in answer
    assert explain_node_exit([f"ERROR: [code: 2004] {json.loads(answer)['detail']}"], "10.0.0.1:9443") == (
        "the coordinator at 10.0.0.1:9443 rejects this site: "
        "the clock of north is 400 s behind the coordinator's; correct it"
    )
    assert scene.post(PULL, signed(NORTH, fast=-200))[0] == 200, "as Flower has it"


def test_malformed_uploads_of_a_site_are_rejected(scene: Scene):
    for path in ("/v1/fleet/push-messages", "/v1/fleet/push-object"):
        status, said = scene.post(path, signed(NORTH), b"some words")
        assert status == 413
        assert b"north uploads a malformed message" in said
    assert not scene.received
    assert scene.post("/v1/fleet/push-messages", signed(NORTH), PushMessagesRequest().SerializeToString())[0] == 200


def test_a_request_hidden_in_another_is_rejected_or_part_of_its_body(scene: Scene):
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
        answer = scene.send(head(PULL, signed(NORTH), *lines) + b"0\r\n\r\n" + hidden)
        first, *more = answer.split(b"HTTP/1.1 ")[1:]
        assert first[:3] in (b"400", b"501"), (lines, answer)
        assert not more
    assert not scene.received
    bare = head(PULL, signed(NORTH), length).replace(b"\r\n", b"\n")
    for words in (head(PULL, signed(NORTH), length), bare):
        answer = scene.send(words + hidden + hidden)
        assert [part[:3] for part in answer.split(b"HTTP/1.1 ") if part[:3].isdigit()] == [b"200", b"404"]
    assert [(path, body) for path, _, body in scene.received] == [(PULL, hidden)] * 2


def test_a_body_or_head_beyond_its_limit_is_rejected(scene: Scene):
    over = LIMITS.body + 1
    for words in (
        head(PULL, signed(NORTH), f"content-length: {over}") + b"x" * over,
        head(PULL, signed(NORTH) | {"x": "y" * 20_000}),
    ):
        assert scene.send(words).startswith(b"HTTP/1.1 413")
    assert not scene.received
    assert scene.post(PULL, signed(NORTH), b"x" * LIMITS.body)[0] == 200


def test_silent_and_slow_connections_are_closed(scene: Scene):
    began = time.monotonic()
    assert scene.send(b"") == b""
    assert scene.send(b"POST /v1/fl") == b""
    assert scene.send(head(PULL, signed(NORTH), "content-length: 10") + b"half") == b""
    whole = head(PULL, signed(NORTH), "content-length: 0")
    assert scene.send(whole).startswith(b"HTTP/1.1 200")  # and then idle
    with scene.connect() as line:
        line.sendall(head(PULL, signed(NORTH), "content-length: 100"))
        with contextlib.suppress(OSError):
            for _ in range(30):
                line.sendall(b"x")
                time.sleep(0.1)
        assert line.recv(100) == b""
    with socket.create_connection(("127.0.0.1", scene.port), 10) as bare:
        assert bare.recv(100) == b""  # no handshake
    assert 4 < time.monotonic() - began < 14


def test_unauthenticated_connections_give_way_to_a_site_and_those_of_a_site_are_limited(scene: Scene):
    with contextlib.ExitStack() as stack:
        strangers = [stack.enter_context(scene.connect()) for _ in range(LIMITS.unauthenticated)]
        assert scene.post(PULL, signed(NORTH))[0] == 200
        assert strangers[0].recv(10) == b"", "the oldest is closed"
        own = [scene.client() for _ in range(LIMITS.per_site + 1)]
        answers: list[int] = []
        for line in own:
            line.request("POST", PULL, b"", signed(NORTH))
            answers.append(read(line)[0])
        assert answers == [200] * LIMITS.per_site + [503]
        assert scene.post(PULL, signed(SOUTH))[0] == 200
        own.pop(0).close()
        _await(lambda: scene.post(PULL, signed(NORTH))[0] == 200)
        for line in own:
            line.close()


def test_two_processes_with_one_key_are_reported_and_a_restart_is_not(scene: Scene, caplog: pytest.LogCaptureFixture):
    def poll(key: EllipticCurvePrivateKey, process: str) -> None:
        assert scene.post(PULL, signed(key) | {"moonfed-process": process})[0] == 200

    for process in ("a", "a", "b", "b", "c"):
        poll(SOUTH, process)
    assert not caplog.messages
    poll(NORTH, "a")
    knock = signed(NORTH) | {"moonfed-process": "b"}
    assert scene.post("/v1/fleet/activate-node", knock)[0] == 200
    assert not caplog.messages
    for process in ("a", "b", "a"):
        poll(NORTH, process)
    assert caplog.messages == ["two processes are using north's key; was its folder copied to another machine?"]
    assert all("moonfed-process" not in headers for _, headers, _ in scene.received)


def test_clients_without_tls_or_without_trust_in_the_certificate_get_nothing(scene: Scene):
    with socket.create_connection(("127.0.0.1", scene.port), 10) as bare:
        bare.sendall(head(PULL, signed(NORTH), "content-length: 0"))
        with contextlib.suppress(ConnectionError):
            assert b"HTTP" not in bare.recv(1000)
    with (
        socket.create_connection(("127.0.0.1", scene.port), 10) as bare,
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        ssl.create_default_context().wrap_socket(bare, server_hostname="127.0.0.1")
    assert not scene.received


def test_each_kind_of_rejection_is_logged_once_and_the_file_is_bounded(scene: Scene, caplog: pytest.LogCaptureFixture):
    assert b"400" in scene.send(b"\x1b[2J all is well\r\n\r\n")
    for i in range(250):
        with scene.connect() as line:
            line.sendall(head(f"/v1/control/{i}", {}, "content-length: 0"))
            assert b"404" in line.recv(1000)
    for _ in range(2):
        assert scene.post(PULL, {})[0] == 412
    assert [line.split(": ")[1] for line in caplog.messages] == [
        "malformed",
        "path",
    ]  # then it was full
    written = scene.log.read_text().splitlines()
    assert len(written) == 200
    assert all(line.isprintable() for line in written)


def test_a_server_that_is_gone_gives_a_502_so_that_the_site_tries_again(scene: Scene):
    assert scene.post(PULL, signed(NORTH))[0] == 200
    scene.server.shutdown()
    scene.server.server_close()
    time.sleep(2.1)  # idle connections are kept for two seconds
    assert scene.post(PULL, signed(NORTH))[0] == 502


def test_a_proxy_that_ends_closes_its_connections_and_its_port(files: ServerFiles, tmp_path: Path):
    scene = Scene(tmp_path, files, ProxyLimits())
    with scene.open():
        line = scene.client()
        line.request("POST", PULL, b"", signed(NORTH))
        assert read(line)[0] == 200
    assert line.sock.recv(1) == b""
    line.close()
    listen("127.0.0.1", scene.port, 1).close()
    assert not [thread for thread in threading.enumerate() if thread.name == "proxy"]


def _await(true: Any, seconds: float = 5) -> None:
    ends = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < ends
        time.sleep(0.05)
