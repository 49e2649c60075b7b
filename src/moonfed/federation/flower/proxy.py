"""The door of a federation: the one port that strangers reach, and through which nobody but a site gets to SuperLink.

SuperLink offers sites, the server's part and its own control on one port, the last without a login. Here it listens on
this machine only, and this door passes on what a site's node needs, signed by a key of the allow-list, and no more.
Requests are read whole and written anew, so that nothing can be hidden in one.
"""

import asyncio
import contextlib
import json
import socket
import ssl
import threading
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import NamedTuple

import h11
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_HEADER, TIMESTAMP_TOLERANCE
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.date import now
from flwr.supercore.error import ApiErrorCode
from flwr.supercore.primitives.asymmetric import verify_signature
from google.protobuf.message import DecodeError

from moonfed.federation.coordinator.audit_log import Book
from moonfed.federation.coordinator.duplicates import LINE, Whereabouts
from moonfed.federation.flower.http_relay import HEAD, Answer, Headers, Inside, TooLarge, Wire, greeted
from moonfed.federation.flower.messages import as_flower
from moonfed.federation.flower.processes import PROCESS_HEADER
from moonfed.federation.flower.quota import Cargo, Unfit
from moonfed.federation.pki.certificates import ServerFiles
from moonfed.federation.protocol.request import PROCESS

NEEDED = ("activate-node", "deactivate-node", "send-node-heartbeat", "get-run", "get-fab")
NEEDED += ("pull-messages", "push-messages", "pull-object", "push-object", "confirm-message-received")
PATHS = frozenset(f"/v1/fleet/{name}".encode() for name in NEEDED)  # of Flower 1.41
HERE = frozenset({b"/v1/fleet/activate-node", b"/v1/fleet/pull-messages"})  # what a node that is at work asks
PASSED = frozenset({b"accept", b"accept-encoding", b"content-type", b"user-agent"})  # headers, with Flower's own
FLOWERS = b"flwr-"
OK = 200


class Limits(NamedTuple):
    """What the door bears."""

    body: int = 16 << 20  # bytes of a request; Flower sends arrays in pieces of 5 MiB
    hello: float = 10.0  # seconds for a stranger's handshake, and then for the head of its first request
    idle: float = 75.0  # seconds between two requests of a site
    quiet: float = 30.0  # seconds between two pieces of a body
    whole: float = 600.0  # seconds for all of it
    strangers: int = 64  # connections that have not yet shown a key; one more, and the oldest of them has to go
    each: int = 16  # connections of one site


USUAL = Limits()


class TurnedAway(Exception):
    """A request that does not pass, and what its sender is told."""

    def __init__(self, status: int, kind: str, what: str) -> None:
        super().__init__(f"{kind}: {what}")
        self.status, self.kind, self.what = status, kind, what


class Door:
    """Lets sites through to SuperLink and nobody else."""

    def __init__(
        self,
        files: ServerFiles,
        port: int,
        allowed: Mapping[str, EllipticCurvePublicKey],
        book: Book,
        limits: Limits = USUAL,
    ) -> None:
        self.book, self.limits = book, limits
        self.keys = {b64encode(as_flower(key)): (site, key) for site, key in allowed.items()}
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.minimum_version = ssl.TLSVersion.TLSv1_2
        self.tls.load_cert_chain(files.certificate, files.key)
        self.inside = Inside(port, ssl.create_default_context(cafile=str(files.authority)))
        self.visits: dict[asyncio.Task[None], str] = {}  # each with its site, if it has shown a key
        self.strangers: dict[asyncio.Task[None], None] = {}  # the others, oldest first
        self.unmet: set[socket.socket] = set()  # connections of visits that have not begun
        self.guests: Counter[str] = Counter()  # connections of each site
        self.whereabouts, self.cargo = Whereabouts(), Cargo()

    async def serve(self, listener: socket.socket) -> None:
        """Take visitors in until told to stop."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    raw, address = await loop.sock_accept(listener)
                except OSError:  # no descriptors left: wait for some visitor to go
                    await asyncio.sleep(0.1)
                    continue
                self.unmet.add(raw)
                visit = loop.create_task(self._visit(raw, str(address[0])))
                self.visits[visit] = ""
                self.strangers[visit] = None
                visit.add_done_callback(partial(self._gone, raw))
                if len(self.strangers) > self.limits.strangers:
                    oldest = next(iter(self.strangers))
                    del self.strangers[oldest]
                    oldest.cancel()
                    self.book.note("crowd", "more strangers than the door bears", str(address[0]))
        finally:
            for visit in list(self.visits):
                visit.cancel()
            await asyncio.gather(*self.visits, return_exceptions=True)
            self.inside.close()

    def _gone(self, raw: socket.socket, visit: asyncio.Task[None]) -> None:
        if raw in self.unmet:  # it had to go before it was looked at
            self.unmet.remove(raw)
            raw.close()
        self.strangers.pop(visit, None)
        site = self.visits.pop(visit, "")
        if site:
            self.guests[site] -= 1
        if not visit.cancelled() and (error := visit.exception()) is not None:
            self.book.note("fault", f"{type(error).__name__} {error}", site or "a stranger")

    async def _visit(self, raw: socket.socket, address: str) -> None:
        wire: Wire | None = None
        self.unmet.discard(raw)
        try:
            wire = await greeted(raw, self.tls, self.limits.hello)
            patience = self.limits.hello
            while await self._let_through(wire, address, patience):
                patience = self.limits.idle
        except ssl.SSLError as error:
            self.book.note("TLS", str(error.reason), address)
        except (OSError, EOFError, TimeoutError, h11.ProtocolError):
            pass  # whoever it was is gone, was too slow, or does not speak as agreed
        finally:
            if wire is None:
                raw.close()
            else:
                await wire.hang_up()

    async def _let_through(self, wire: Wire, address: str, patience: float) -> bool:
        """Serve one request; False when the visit is over."""
        limits = self.limits
        try:
            request = await wire.request(patience)
            if request is None:
                return False
            headers = self._judged(request)
            body = await wire.body(limits.body, limits.quiet, limits.whole)
            site = self._site()
            self._look_into(site, request.target, body)
        except TurnedAway as no:
            await self._turn_away(wire, no, address)
            return False
        except TooLarge:
            no = TurnedAway(
                413, "size", f"a request of more than {limits.body >> 20} MiB, or a head of more than {HEAD >> 10} KiB"
            )
            await self._turn_away(wire, no, address)
            return False
        except h11.RemoteProtocolError as error:
            await self._turn_away(wire, TurnedAway(error.error_status_hint, "form", str(error)), address)
            return False
        try:
            answer = await self.inside.ask(request.target, headers, body)
        except (OSError, EOFError, TimeoutError, h11.ProtocolError):  # a site then tries again
            answer = Answer(502, [], b"SuperLink does not answer")
        if answer.status == OK:
            self.cargo.note(site, request.target, body, answer.body)
        await wire.send(_response(answer), answer.body, limits.whole)
        return wire.again()

    def _judged(self, request: h11.Request) -> Headers:
        """Return what is passed on of a request's head, or turn it away."""
        if request.method != b"POST" or request.target not in PATHS:
            shown = (request.method[:16] + b" " + request.target[:120]).decode("latin-1")
            raise TurnedAway(404, "path", f"{shown}, which no site needs")
        headers = [(k, v) for k, v in request.headers if k in PASSED or k.startswith(FLOWERS)]
        given, lengths = dict(headers), [v for k, v in request.headers if k == b"content-length"]
        if len(given) != len(headers) or any(k == b"transfer-encoding" for k, _ in request.headers):
            raise TurnedAway(400, "form", "a header that is there twice, or a body of unsaid length")
        if sum(len(k) + len(v) for k, v in request.headers) > HEAD or any(int(n) > self.limits.body for n in lengths):
            raise TooLarge
        site, key = self.keys.get(given.get(FLEET_HTTP_PUBLIC_KEY_HEADER.encode(), b""), ("", None))
        if key is None:
            raise TurnedAway(412, "key", "a node whose key is not on the allow-list")
        try:
            signature = b64decode(given.get(FLEET_HTTP_SIGNATURE_HEADER.encode(), b""), validate=True)
        except ValueError:
            signature = b""
        if not verify_signature(key, given.get(TIMESTAMP_HEADER.encode(), b""), signature):
            raise TurnedAway(412, "key", f"a node that shows the key of {site} and cannot sign with it")
        if (off := _clock(given[TIMESTAMP_HEADER.encode()])) is not None:
            raise TurnedAway(412, "clock", f"the clock of {site} is {off}; set it right")
        self._known(site)
        if request.target in HERE:
            processes = [v[:64] for k, v in request.headers if k == PROCESS_HEADER.encode()]
            if processes and self.whereabouts.doubled(site, {PROCESS: processes[0]}):
                self.book.say(LINE.format(site))
        return headers

    def _look_into(self, site: str, path: bytes, body: bytes) -> None:
        try:
            self.cargo.judge(site, path, body)
        except (Unfit, DecodeError) as error:
            why = str(error) if isinstance(error, Unfit) else "something in another form than Flower's"
            raise TurnedAway(413, "cargo", f"{site} hands in {why}") from None

    def _site(self) -> str:
        visit = asyncio.current_task()
        return self.visits[visit] if visit is not None else ""

    def _known(self, site: str) -> None:
        """Count a connection as its site's from now on."""
        visit = asyncio.current_task()
        if visit is None or self.visits[visit] == site:
            return
        if self.visits[visit] or self.guests[site] >= self.limits.each:
            raise TurnedAway(503, "crowd", f"more connections of {site} than the door bears")
        self.strangers.pop(visit, None)
        self.visits[visit] = site
        self.guests[site] += 1

    async def _turn_away(self, wire: Wire, no: TurnedAway, address: str) -> None:
        self.book.note(no.kind, no.what, address)
        said = {"code": int(ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED), "detail": f"moonfed's door: {no.what}"}
        with contextlib.suppress(TimeoutError, TooLarge, EOFError, h11.ProtocolError):
            await wire.body(1 << 20, 1, 1)  # who is still speaking would not hear
        if wire.parser.our_state in (h11.IDLE, h11.SEND_RESPONSE, h11.SEND_BODY):
            answer = Answer(no.status, [(b"content-type", b"application/json")], json.dumps(said).encode())
            await wire.send(_response(answer, last=True), answer.body, 1)


def _clock(moment: bytes) -> str | None:
    """Say how far a site's clock is off, where Flower would not take what it signs."""
    try:
        late = (now() - datetime.fromisoformat(moment.decode())).total_seconds()
    except (ValueError, TypeError):
        return "not to be read"
    if late <= -SYSTEM_TIME_TOLERANCE:
        return f"{-late:.0f} s ahead of the coordinator's"
    return f"{late:.0f} s behind the coordinator's" if late >= TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE else None


def _response(answer: Answer, last: bool = False) -> h11.Response:
    length = (b"content-length", str(len(answer.body)).encode())
    closing = [(b"connection", b"close")] if last else []
    return h11.Response(status_code=answer.status, headers=[*answer.headers, length, *closing])


@contextlib.contextmanager
def opened(
    listener: socket.socket,
    files: ServerFiles,
    port: int,
    allowed: Mapping[str, EllipticCurvePublicKey],
    book: Book,
    limits: Limits = USUAL,
) -> Iterator[Door]:
    """Keep a door open on a socket that listens, in a thread of its own, while the block lasts."""
    door, loop = Door(files, port, allowed, book, limits), asyncio.new_event_loop()
    listener.setblocking(False)
    serving = loop.create_task(door.serve(listener))

    def work() -> None:
        try:
            with contextlib.suppress(asyncio.CancelledError):
                loop.run_until_complete(serving)
        finally:
            loop.close()

    thread = threading.Thread(target=work, name="door", daemon=True)
    thread.start()
    try:
        yield door
    finally:
        with contextlib.suppress(RuntimeError):  # it has ended
            loop.call_soon_threadsafe(serving.cancel)
        thread.join(5)
        listener.close()
