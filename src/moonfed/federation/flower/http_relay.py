"""HTTP/1.1 by whole messages, each bounded in size and time, and a pool of connections to a local server."""

import asyncio
import socket
import ssl
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import h11

MAX_HEAD_BYTES = 16 << 10
MAX_RESPONSE_BYTES = 1 << 40  # of SuperLink, which is trusted
READ_BYTES = 1 << 16
MAX_UPSTREAM_CONNECTIONS = 32
IDLE_SECONDS = 2.0  # for which an unused upstream connection is kept; the server closes it after five
UPSTREAM_SECONDS = 60.0  # that the server may take to respond

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
HOP_BY_HOP = frozenset({b"connection", b"content-length", b"keep-alive", b"transfer-encoding", b"upgrade"})


class BodyTooLarge(Exception):
    """A body beyond its limit."""


class HttpResponse(NamedTuple):
    """A whole response."""

    status: int
    headers: Headers
    body: bytes


class HttpConnection:
    """One HTTP connection, as server or as client."""

    def __init__(self, role: type[h11.SERVER] | type[h11.CLIENT], streams: tuple[Any, Any]) -> None:
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter
        self.reader, self.writer = streams
        self.parser = h11.Connection(role, max_incomplete_event_size=MAX_HEAD_BYTES)

    async def read_request(self, seconds: float) -> h11.Request | None:
        """Read the head of a request; None when the other side has closed the connection."""
        async with asyncio.timeout(seconds):
            event = await self._next_event()
        return event if isinstance(event, h11.Request) else None

    async def read_body(self, limit: int, idle_seconds: float, total_seconds: float) -> bytes:
        """Read the body of the message whose head was read, within limits of size and time."""
        parts, size = list[bytes](), 0
        async with asyncio.timeout(total_seconds):
            while True:
                async with asyncio.timeout(idle_seconds):
                    event = await self._next_event()
                if isinstance(event, h11.EndOfMessage):
                    return b"".join(parts)
                if not isinstance(event, h11.Data):
                    raise EOFError
                size += len(event.data)
                if size > limit:
                    raise BodyTooLarge
                parts.append(bytes(event.data))

    async def read_response(self) -> HttpResponse:
        """Read a server's response."""
        async with asyncio.timeout(UPSTREAM_SECONDS):
            head = await self._next_event()
            if not isinstance(head, h11.Response):
                raise EOFError
            headers = [(name, value) for name, value in head.headers if name not in HOP_BY_HOP]
            body = await self.read_body(MAX_RESPONSE_BYTES, UPSTREAM_SECONDS, UPSTREAM_SECONDS)
            return HttpResponse(head.status_code, headers, body)

    async def send(self, head: h11.Request | h11.Response, body: bytes, seconds: float) -> None:
        """Send a whole message."""
        parts = [self.parser.send(event) for event in (head, h11.Data(data=body), h11.EndOfMessage())]
        self.writer.write(b"".join(part for part in parts if part))
        async with asyncio.timeout(seconds):
            await self.writer.drain()

    def reuse(self) -> bool:
        """Get ready for another message; False if the connection cannot be used again."""
        if self.parser.our_state is not h11.DONE or self.parser.their_state is not h11.DONE:
            return False
        self.parser.start_next_cycle()
        return not self.reader.at_eof()

    async def close(self) -> None:
        """Close the connection, with a second for the last response to be delivered."""
        try:
            async with asyncio.timeout(1):
                self.writer.close()
                await self.writer.wait_closed()
        except (OSError, TimeoutError):
            pass
        finally:
            self.abort()

    def abort(self) -> None:
        """Close the connection at once."""
        self.writer.transport.abort()

    async def _next_event(self) -> Any:
        while (event := self.parser.next_event()) is h11.NEED_DATA:
            self.parser.receive_data(await self.reader.read(READ_BYTES))
        return event


async def accept_tls(raw: socket.socket, tls: ssl.SSLContext, seconds: float) -> HttpConnection:
    """Make the TLS handshake on an accepted connection."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=READ_BYTES)
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.connect_accepted_socket(lambda: protocol, raw, ssl=tls, ssl_handshake_timeout=seconds)
    return HttpConnection(h11.SERVER, (reader, asyncio.StreamWriter(transport, protocol, reader, loop)))


class UpstreamPool:
    """Reused TLS connections to a server on this machine."""

    def __init__(self, port: int, tls: ssl.SSLContext) -> None:
        self.port, self.tls = port, tls
        self.slots = asyncio.Semaphore(MAX_UPSTREAM_CONNECTIONS)
        self.idle: list[tuple[float, HttpConnection]] = []

    async def forward(self, path: bytes, headers: Headers, body: bytes) -> HttpResponse:
        """Send a request to the server and return its response."""
        host = (b"host", f"127.0.0.1:{self.port}".encode())
        length = (b"content-length", str(len(body)).encode())
        async with self.slots:
            connection = await self._connect()
            try:
                head = h11.Request(method=b"POST", target=path, headers=[host, *headers, length])
                await connection.send(head, body, UPSTREAM_SECONDS)
                response = await connection.read_response()
            except BaseException:
                connection.abort()
                raise
            if connection.reuse():
                self.idle.append((time.monotonic(), connection))
            else:
                connection.abort()
            return response

    async def _connect(self) -> HttpConnection:
        while self.idle:
            since, connection = self.idle.pop()
            if time.monotonic() - since < IDLE_SECONDS and not connection.reader.at_eof():
                return connection
            connection.abort()
        async with asyncio.timeout(UPSTREAM_SECONDS):
            streams = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.tls)
            return HttpConnection(h11.CLIENT, streams)

    def close(self) -> None:
        """Close all connections."""
        for _, connection in self.idle:
            connection.abort()
        self.idle = []
