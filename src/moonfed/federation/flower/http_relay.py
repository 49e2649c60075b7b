"""HTTP by whole messages, each bounded in size and time, and a few open lines to a server on this machine."""

import asyncio
import socket
import ssl
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import h11

HEAD = 16 << 10  # bytes of a request's first lines
PIECE = 1 << 16
LINES = 32  # requests that are with the server at a time
STILL_OPEN = 2.0  # seconds for which an unused line is kept; the server closes it after five
ANSWER = 60.0  # seconds that the server may take

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
HOP = frozenset({b"connection", b"content-length", b"keep-alive", b"transfer-encoding", b"upgrade"})  # of one line only


class TooLarge(Exception):
    """A body beyond its bound."""


class Answer(NamedTuple):
    """What a server says to a request."""

    status: int
    headers: Headers
    body: bytes


class Wire:
    """A connection on which one side asks and the other answers."""

    def __init__(self, role: type[h11.SERVER] | type[h11.CLIENT], streams: tuple[Any, Any]) -> None:
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter
        self.reader, self.writer = streams
        self.parser = h11.Connection(role, max_incomplete_event_size=HEAD)

    async def request(self, seconds: float) -> h11.Request | None:
        """Wait for the head of a request; None when the other side has hung up."""
        async with asyncio.timeout(seconds):
            event = await self._event()
        return event if isinstance(event, h11.Request) else None

    async def body(self, most: int, quiet: float, whole: float) -> bytes:
        """Take the body of the message whose head was read: so many bytes at most, each piece and all of it in time."""
        parts, size = list[bytes](), 0
        async with asyncio.timeout(whole):
            while True:
                async with asyncio.timeout(quiet):
                    event = await self._event()
                if isinstance(event, h11.EndOfMessage):
                    return b"".join(parts)
                if not isinstance(event, h11.Data):
                    raise EOFError
                size += len(event.data)
                if size > most:
                    raise TooLarge
                parts.append(bytes(event.data))

    async def answered(self) -> Answer:
        """Wait for a server's answer."""
        async with asyncio.timeout(ANSWER):
            head = await self._event()
            if not isinstance(head, h11.Response):
                raise EOFError
            headers = [(name, value) for name, value in head.headers if name not in HOP]
            return Answer(head.status_code, headers, await self.body(1 << 40, ANSWER, ANSWER))

    async def send(self, head: h11.Request | h11.Response, body: bytes, seconds: float) -> None:
        """Send a message."""
        parts = [self.parser.send(event) for event in (head, h11.Data(data=body), h11.EndOfMessage())]
        self.writer.write(b"".join(part for part in parts if part))
        async with asyncio.timeout(seconds):
            await self.writer.drain()

    def again(self) -> bool:
        """Get ready for another message; False where the connection has served its time."""
        if self.parser.our_state is not h11.DONE or self.parser.their_state is not h11.DONE:
            return False
        self.parser.start_next_cycle()
        return not self.reader.at_eof()

    async def hang_up(self) -> None:
        """Close the connection, with a second for what was said last to get there."""
        try:
            async with asyncio.timeout(1):
                self.writer.close()
                await self.writer.wait_closed()
        except (OSError, TimeoutError):
            pass
        finally:
            self.writer.transport.abort()

    async def _event(self) -> Any:
        while (event := self.parser.next_event()) is h11.NEED_DATA:
            self.parser.receive_data(await self.reader.read(PIECE))
        return event


async def greeted(raw: socket.socket, tls: ssl.SSLContext, seconds: float) -> Wire:
    """Shake hands with who has just connected."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=PIECE)
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.connect_accepted_socket(lambda: protocol, raw, ssl=tls, ssl_handshake_timeout=seconds)
    return Wire(h11.SERVER, (reader, asyncio.StreamWriter(transport, protocol, reader, loop)))


class Inside:
    """A server on this machine, spoken to over TLS on lines that are used again."""

    def __init__(self, port: int, tls: ssl.SSLContext) -> None:
        self.port, self.tls = port, tls
        self.room = asyncio.Semaphore(LINES)
        self.open: list[tuple[float, Wire]] = []

    async def ask(self, path: bytes, headers: Headers, body: bytes) -> Answer:
        """Pass a request on and return what the server says."""
        host = (b"host", f"127.0.0.1:{self.port}".encode())
        length = (b"content-length", str(len(body)).encode())
        async with self.room:
            wire = await self._line()
            try:
                head = h11.Request(method=b"POST", target=path, headers=[host, *headers, length])
                await wire.send(head, body, ANSWER)
                answer = await wire.answered()
            except BaseException:
                wire.writer.transport.abort()
                raise
            if wire.again():
                self.open.append((time.monotonic(), wire))
            else:
                wire.writer.transport.abort()
            return answer

    async def _line(self) -> Wire:
        while self.open:
            since, wire = self.open.pop()
            if time.monotonic() - since < STILL_OPEN and not wire.reader.at_eof():
                return wire
            wire.writer.transport.abort()
        async with asyncio.timeout(ANSWER):
            return Wire(h11.CLIENT, await asyncio.open_connection("127.0.0.1", self.port, ssl=self.tls))

    def close(self) -> None:
        """Let go of all lines."""
        for _, wire in self.open:
            wire.writer.transport.abort()
        self.open = []
