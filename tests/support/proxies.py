"""A proxy on real sockets, the server behind it, and its clients."""

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

from moonfed.federation.coordinator.audit_log import AuditLog
from moonfed.federation.flower.messages import flower_key_bytes
from moonfed.federation.flower.processes import free_port, listen
from moonfed.federation.flower.proxy import Proxy, ProxyLimits, running_proxy
from moonfed.federation.pki.certificates import ServerFiles

PULL = "/v1/fleet/pull-messages"
NORTH, SOUTH, STRANGER = (generate_private_key(SECP384R1()) for _ in range(3))
LIMITS = ProxyLimits(body=1 << 20, hello=1.0, idle=1.0, quiet=0.5, whole=2.0, unauthenticated=4, per_site=3)


def signed(
    key: EllipticCurvePrivateKey, shown: EllipticCurvePrivateKey | None = None, fast: float = 0
) -> dict[str, str]:
    """The headers with which a node signs a request; it may show another key, and its clock may be wrong."""
    moment = (now() + timedelta(seconds=fast)).isoformat()
    return {
        "content-type": "application/protobuf",
        "flwr-public-key": b64encode(flower_key_bytes((shown or key).public_key())).decode(),
        "flwr-timestamp": moment,
        "flwr-signature": b64encode(sign_message(key, moment.encode())).decode(),
    }


class Server(BaseHTTPRequestHandler):
    """The server behind the proxy: it records requests and echoes their bodies."""

    protocol_version = "HTTP/1.1"
    received: list[tuple[str, dict[str, str], bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.received.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
        self.send_response(418 if body == b"teapot" else 200)
        self.send_header("content-length", str(len(body)))
        self.send_header("flwr-version", "1.41")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Scene:
    """A proxy, the server behind it, and its clients."""

    def __init__(self, folder: Path, files: ServerFiles, limits: ProxyLimits) -> None:
        self.files, self.log = files, folder / "audit.log"
        self.received: list[tuple[str, dict[str, str], bytes]] = []
        self.port = free_port()
        self.server = ThreadingHTTPServer(
            ("127.0.0.1", 0), type("CustomEncoder", (Server,), {"received": self.received})
        )
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
        proxy = Proxy(self.files, self.server.server_address[1], allowed, AuditLog(self.log), self.limits)
        try:
            with running_proxy(listen("127.0.0.1", self.port), proxy):
                yield self
        finally:
            self.server.shutdown()
            self.server.server_close()

    def client(self) -> HTTPSConnection:
        """A client that checks the certificate."""
        return HTTPSConnection("127.0.0.1", self.port, context=self.trusting, timeout=10)

    def post(self, path: str, headers: dict[str, str], body: bytes = b"", method: str = "POST") -> tuple[int, bytes]:
        """Send one request, on a connection of its own."""
        with contextlib.closing(self.client()) as client:
            client.request(method, path, body, headers)
            return read(client)

    def connect(self) -> ssl.SSLSocket:
        """A TLS connection on which any bytes may be sent."""
        return self.trusting.wrap_socket(
            socket.create_connection(("127.0.0.1", self.port), 10), server_hostname="127.0.0.1"
        )

    def send(self, content: bytes) -> bytes:
        """Send any bytes and read to the end."""
        with self.connect() as connection:
            connection.sendall(content)
            return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def read(client: HTTPSConnection) -> tuple[int, bytes]:
    response: HTTPResponse = client.getresponse()
    return response.status, response.read()


def head(path: str, headers: dict[str, str], *lines: str) -> bytes:
    """The head of a request, as it is sent."""
    content = [f"POST {path} HTTP/1.1", "host: x", *(f"{k}: {v}" for k, v in headers.items()), *lines, "", ""]
    return "\r\n".join(content).encode()
