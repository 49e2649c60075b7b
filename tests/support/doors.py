"""A door on real sockets, the server behind it, and those who come to it."""

import contextlib
import socket
import ssl
import threading
from base64 import b64encode
from collections.abc import Iterator
from datetime import timedelta
from http.client import HTTPResponse, HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, EllipticCurvePrivateKey, generate_private_key
from flwr.supercore.date import now
from flwr.supercore.primitives.asymmetric import sign_message

from moonfed.federation.coordinator.audit_log import Book
from moonfed.federation.flower.messages import as_flower
from moonfed.federation.flower.processes import free_port, listening
from moonfed.federation.flower.proxy import Limits, opened
from moonfed.federation.pki.certificates import ServerFiles

PULL = "/v1/fleet/pull-messages"
NORTH, SOUTH, STRANGER = (generate_private_key(SECP384R1()) for _ in range(3))
LIMITS = Limits(body=1 << 20, hello=1.0, idle=1.0, quiet=0.5, whole=2.0, strangers=4, each=3)


def signed(
    key: EllipticCurvePrivateKey, shown: EllipticCurvePrivateKey | None = None, fast: float = 0
) -> dict[str, str]:
    """The headers with which a node signs a request; it may show another key than it has, and its clock be fast."""
    moment = (now() + timedelta(seconds=fast)).isoformat()
    return {
        "content-type": "application/protobuf",
        "flwr-public-key": b64encode(as_flower((shown or key).public_key())).decode(),
        "flwr-timestamp": moment,
        "flwr-signature": b64encode(sign_message(key, moment.encode())).decode(),
    }


class Server(BaseHTTPRequestHandler):
    """What stands behind the door: it keeps what it hears, and says it back."""

    protocol_version = "HTTP/1.1"
    heard: list[tuple[str, dict[str, str], bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.heard.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
        self.send_response(418 if body == b"teapot" else 200)
        self.send_header("content-length", str(len(body)))
        self.send_header("flwr-version", "1.41")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Scene:
    """A door, the server behind it, and those who come."""

    def __init__(self, folder: Path, files: ServerFiles, limits: Limits, said: list[str]) -> None:
        self.files, self.log, self.said = files, folder / "door.log", said
        self.heard: list[tuple[str, dict[str, str], bytes]] = []
        self.port = free_port()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("CustomEncoder", (Server,), {"heard": self.heard}))
        self.server.daemon_threads = True
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(files.certificate, files.key)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.trusting = ssl.create_default_context(cafile=str(files.authority))
        self.limits = limits

    @contextlib.contextmanager
    def open(self) -> Iterator["Scene"]:
        allowed = {"north": NORTH.public_key(), "south": SOUTH.public_key()}
        book, inside = Book(self.log, self.said.append), self.server.server_address[1]
        try:
            with opened(listening("127.0.0.1", self.port), self.files, inside, allowed, book, self.limits):
                yield self
        finally:
            self.server.shutdown()
            self.server.server_close()

    def visitor(self) -> HTTPSConnection:
        """A client that checks the certificate."""
        return HTTPSConnection("127.0.0.1", self.port, context=self.trusting, timeout=10)

    def ask(self, path: str, headers: dict[str, str], body: bytes = b"", method: str = "POST") -> tuple[int, bytes]:
        """Ask once, on a connection of its own."""
        with contextlib.closing(self.visitor()) as line:
            line.request(method, path, body, headers)
            return read(line)

    def line(self) -> ssl.SSLSocket:
        """A bare connection, on which anything may be said."""
        return self.trusting.wrap_socket(
            socket.create_connection(("127.0.0.1", self.port), 10), server_hostname="127.0.0.1"
        )

    def say(self, words: bytes) -> bytes:
        """Say anything and listen to the end."""
        with self.line() as line:
            line.sendall(words)
            return b"".join(iter(lambda: line.recv(1 << 16), b""))


def read(line: HTTPSConnection) -> tuple[int, bytes]:
    answer: HTTPResponse = line.getresponse()
    return answer.status, answer.read()


def head(path: str, headers: dict[str, str], *lines: str) -> bytes:
    """The first lines of a request, as they go over the line."""
    words = [f"POST {path} HTTP/1.1", "host: x", *(f"{k}: {v}" for k, v in headers.items()), *lines, "", ""]
    return "\r\n".join(words).encode()
