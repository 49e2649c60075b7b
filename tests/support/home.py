"""A home for files on this machine: a real HTTP server that serves pieces, and misbehaves when it is told to."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any


@dataclass
class Asked:
    """A request, and how many bytes of the file went out for it; written down before it is answered."""

    path: str
    start: int | None  # of the piece that was asked for
    sent: int = 0


class Home:
    """Serves files by path; faults are used up one a request, then all is well."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.faults: list[str] = []
        self.log: list[Asked] = []
        self.released = Event()  # ends the slowness of the fault "slow"
        home = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                home.answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/{path}"

    def answer(self, to: BaseHTTPRequestHandler) -> None:
        fault, _, detail = (self.faults.pop(0) if self.faults else "").partition(" ")
        path, asked = to.path.lstrip("/"), to.headers.get("Range")
        content = self.files.get(path)
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else None
        request = Asked(path, start)
        self.log.append(request)
        if fault == "silent":
            self.released.wait(5)
            return
        if fault.isdecimal() or content is None:
            to.send_error(int(fault or 404))
            return
        if fault == "other":  # a page of somebody else's, as hotels and cafés serve them
            content, start = b"<html>please log in</html>", None
        if fault == "moved":
            to.send_response(302)
            to.send_header("Location", self.url(path))
            to.end_headers()
            return
        if fault == "whole":  # a server that does not know pieces
            start = None
        if start is not None and start >= len(content):
            to.send_response(416)
            to.send_header("Content-Range", f"bytes */{len(content)}")
            to.send_header("Content-Length", "0")
            to.end_headers()
            return
        body = content[start or 0 :]
        to.send_response(200 if start is None else 206)
        if start is not None:
            first = start + 1 if fault == "shifted" else start
            to.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        if fault == "huge":
            to.send_header("Content-Length", str(10**12))
        elif fault not in ("endless", "unmeasured"):
            to.send_header("Content-Length", str(len(body)))
        to.end_headers()
        with suppress(OSError):  # the other side has left
            self._send(to, request, fault, body[: int(detail)] if fault == "short" else body)

    def _send(self, to: BaseHTTPRequestHandler, request: Asked, fault: str, body: bytes) -> None:
        step = 4096 if fault == "slow" else len(body)
        while request.sent < len(body):
            piece = body[request.sent : request.sent + step]
            request.sent += len(piece)
            to.wfile.write(piece)
            if fault == "slow" and not self.released.is_set():
                time.sleep(0.02)
            if fault == "endless":
                request.sent = 0


@contextmanager
def serving() -> Iterator[Home]:
    """Serve as long as it is needed."""
    home = Home()
    thread = Thread(target=home.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield home
    finally:
        home.released.set()
        home.server.shutdown()
        home.server.server_close()
        thread.join()
