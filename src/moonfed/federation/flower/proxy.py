"""The proxy in front of SuperLink: the only port that is reachable from outside, open to sites only.

SuperLink serves sites, the ServerApp and its own control interface on one port, the last without a login. Here it
listens on this machine only, and the proxy forwards what a site's node needs, signed by a key of the allow-list, and
nothing else. Requests are read completely and written anew, so that nothing can be hidden in them.
"""

import asyncio
import contextlib
import json
import logging
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

import h11
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from flwr.supercore.error import ApiErrorCode
from google.protobuf.message import DecodeError

from moonfed.federation.coordinator.audit_log import AuditLog
from moonfed.federation.coordinator.duplicates import DUPLICATE, DuplicateDetector
from moonfed.federation.flower.authentication import Authenticator, RejectedRequest
from moonfed.federation.flower.http_relay import (
    MAX_HEAD_BYTES,
    BodyTooLarge,
    HttpConnection,
    HttpResponse,
    UpstreamPool,
    accept_tls,
)
from moonfed.federation.flower.node_log import PROXY
from moonfed.federation.flower.processes import PROCESS_HEADER
from moonfed.federation.flower.quota import InvalidUpload, UploadQuota
from moonfed.federation.pki.certificates import ServerFiles

logger = logging.getLogger(__name__)
ACTIVE_PATHS = frozenset({b"/v1/fleet/activate-node", b"/v1/fleet/pull-messages"})  # used by every active node
MAX_PROCESS_CHARS = 64
OK = 200


class ProxyLimits(NamedTuple):
    """Limits of size, time and number of connections."""

    body: int = 16 << 20  # bytes of a request; Flower sends arrays in parts of 5 MiB
    hello: float = 10.0  # seconds for the TLS handshake, and then for the head of the first request
    idle: float = 75.0  # seconds between two requests of a site
    quiet: float = 30.0  # seconds between two reads of a body
    whole: float = 600.0  # seconds for a whole body
    unauthenticated: int = 64  # connections without a valid request yet; beyond it the oldest is closed
    per_site: int = 16  # connections of one site


DEFAULT_LIMITS = ProxyLimits()


class Proxy:
    """Forwards the requests of sites to SuperLink."""

    def __init__(
        self,
        files: ServerFiles,
        port: int,
        allowed: Mapping[str, EllipticCurvePublicKey],
        audit_log: AuditLog,
        limits: ProxyLimits = DEFAULT_LIMITS,
    ) -> None:
        self.audit_log, self.limits, self.authenticator = audit_log, limits, Authenticator(allowed)
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.minimum_version = ssl.TLSVersion.TLSv1_2
        self.tls.load_cert_chain(files.certificate, files.key)
        self.upstream = UpstreamPool(port, ssl.create_default_context(cafile=str(files.authority)))
        self.connections: dict[asyncio.Task[None], str] = {}  # each with its site, "" before it is authenticated
        self.unauthenticated: dict[asyncio.Task[None], None] = {}  # oldest first
        self.not_started: set[socket.socket] = set()  # connections whose task has not run yet
        self.per_site: Counter[str] = Counter()
        self.duplicates, self.quota = DuplicateDetector(), UploadQuota()

    async def serve(self, listener: socket.socket) -> None:
        """Accept connections until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    raw, address = await loop.sock_accept(listener)
                except OSError:  # no descriptors left: wait until a connection is closed
                    await asyncio.sleep(0.1)
                    continue
                self.not_started.add(raw)
                task = loop.create_task(self._handle_connection(raw, str(address[0])))
                self.connections[task] = ""
                self.unauthenticated[task] = None
                task.add_done_callback(partial(self._remove, raw))
                if len(self.unauthenticated) > self.limits.unauthenticated:
                    oldest = next(iter(self.unauthenticated))
                    del self.unauthenticated[oldest]
                    oldest.cancel()
                    self.audit_log.record("limit", "too many unauthenticated connections", str(address[0]))
        finally:
            for task in list(self.connections):
                task.cancel()
            await asyncio.gather(*self.connections, return_exceptions=True)
            self.upstream.close()

    def _remove(self, raw: socket.socket, task: asyncio.Task[None]) -> None:
        if raw in self.not_started:  # cancelled before it ran
            self.not_started.remove(raw)
            raw.close()
        self.unauthenticated.pop(task, None)
        site = self.connections.pop(task, "")
        if site:
            self.per_site[site] -= 1
        if not task.cancelled() and (error := task.exception()) is not None:
            self.audit_log.record("internal error", f"{type(error).__name__} {error}", site or "an unknown sender")

    async def _handle_connection(self, raw: socket.socket, address: str) -> None:
        connection: HttpConnection | None = None
        self.not_started.discard(raw)
        try:
            connection = await accept_tls(raw, self.tls, self.limits.hello)
            seconds = self.limits.hello
            while await self._handle_request(connection, address, seconds):
                seconds = self.limits.idle
        except ssl.SSLError as error:
            self.audit_log.record("TLS", str(error.reason), address)
        except (OSError, EOFError, TimeoutError, h11.ProtocolError):
            pass  # the other side is gone, was too slow, or does not use HTTP
        finally:
            if connection is None:
                raw.close()
            else:
                await connection.close()

    async def _handle_request(self, connection: HttpConnection, address: str, seconds: float) -> bool:
        """Serve one request; False when the connection is to be closed."""
        limits = self.limits
        try:
            request = await connection.read_request(seconds)
            if request is None:
                return False
            site, headers = self.authenticator.authenticate(request, limits.body)
            self._assign(site)
            self._detect_duplicate(site, request)
            body = await connection.read_body(limits.body, limits.quiet, limits.whole)
            self._check_quota(site, request.target, body)
        except (RejectedRequest, BodyTooLarge, h11.RemoteProtocolError) as error:
            await self._reject(connection, self._rejection(error), address)
            return False
        try:
            response = await self.upstream.forward(request.target, headers, body)
        except (OSError, EOFError, TimeoutError, h11.ProtocolError):  # the site tries again
            response = HttpResponse(502, [], b"SuperLink does not answer")
        if response.status == OK:
            self.quota.record_download(site, request.target, body, response.body)
        await connection.send(_response_head(response), response.body, limits.whole)
        return connection.reuse()

    def _assign(self, site: str) -> None:
        """Count the current connection as one of its site from now on."""
        task = asyncio.current_task()
        if task is None or self.connections[task] == site:
            return
        if self.connections[task] or self.per_site[site] >= self.limits.per_site:
            raise RejectedRequest(503, "limit", f"too many connections of {site}")
        self.unauthenticated.pop(task, None)
        self.connections[task] = site
        self.per_site[site] += 1

    def _detect_duplicate(self, site: str, request: h11.Request) -> None:
        if request.target not in ACTIVE_PATHS:
            return
        processes = [v[:MAX_PROCESS_CHARS] for k, v in request.headers if k == PROCESS_HEADER.encode()]
        if processes and self.duplicates.observe(site, processes[0]):
            logger.warning(DUPLICATE.format(site))

    def _check_quota(self, site: str, path: bytes, body: bytes) -> None:
        try:
            self.quota.check(site, path, body)
        except (InvalidUpload, DecodeError) as error:
            detail = str(error) if isinstance(error, InvalidUpload) else "a malformed message"
            raise RejectedRequest(413, "quota", f"{site} uploads {detail}") from None

    def _rejection(self, error: RejectedRequest | BodyTooLarge | h11.RemoteProtocolError) -> RejectedRequest:
        if isinstance(error, RejectedRequest):
            return error
        if isinstance(error, h11.RemoteProtocolError):
            return RejectedRequest(error.error_status_hint, "malformed", str(error))
        sizes = f"a body of more than {self.limits.body >> 20} MiB or a head of more than {MAX_HEAD_BYTES >> 10} KiB"
        return RejectedRequest(413, "size", sizes)

    async def _reject(self, connection: HttpConnection, rejection: RejectedRequest, address: str) -> None:
        """Record a rejection and tell the sender, in the form in which Flower's nodes read errors."""
        self.audit_log.record(rejection.kind, rejection.detail, address)
        with contextlib.suppress(TimeoutError, BodyTooLarge, EOFError, h11.ProtocolError):
            await connection.read_body(1 << 20, 1, 1)  # a sender that is still sending would not read the response
        if connection.parser.our_state in (h11.IDLE, h11.SEND_RESPONSE, h11.SEND_BODY):
            content = {"code": int(ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED), "detail": f"{PROXY}: {rejection.detail}"}
            headers = [(b"content-type", b"application/json")]
            response = HttpResponse(rejection.status, headers, json.dumps(content).encode())
            await connection.send(_response_head(response, last=True), response.body, 1)


def _response_head(response: HttpResponse, last: bool = False) -> h11.Response:
    length = (b"content-length", str(len(response.body)).encode())
    closing = [(b"connection", b"close")] if last else []
    return h11.Response(status_code=response.status, headers=[*response.headers, length, *closing])


@contextlib.contextmanager
def running_proxy(listener: socket.socket, proxy: Proxy) -> Iterator[None]:
    """Run a proxy on a listening socket, in a thread of its own, while the block runs."""
    loop = asyncio.new_event_loop()
    listener.setblocking(False)
    serving = loop.create_task(proxy.serve(listener))

    def work() -> None:
        try:
            with contextlib.suppress(asyncio.CancelledError):
                loop.run_until_complete(serving)
        finally:
            loop.close()

    thread = threading.Thread(target=work, name="proxy", daemon=True)
    thread.start()
    try:
        yield
    finally:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(serving.cancel)
        thread.join(5)
        listener.close()
