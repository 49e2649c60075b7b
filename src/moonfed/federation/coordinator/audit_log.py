"""Logs of what was rejected: requests at the coordinator's port, and updates of sites."""

import contextlib
import logging
from pathlib import Path

from moonfed.core.errors import UserError
from moonfed.core.files import append_line
from moonfed.federation.protocol.rejection import Rejection, sanitize

logger = logging.getLogger(__name__)
MAX_ENTRIES = 200  # different rejections that are written after a start


class AuditLog:
    """Rejected requests at the coordinator's port, in a file of bounded size.

    Equal entries are written once. The first entry of each kind is also logged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kinds, self.entries = set[str](), set[str]()

    def record(self, kind: str, detail: str, address: str) -> None:
        """Write a rejection, unless an equal one is there or the file is full."""
        entry = sanitize(f"{kind}: {detail}")
        if entry in self.entries or len(self.entries) >= MAX_ENTRIES:
            return
        self.entries.add(entry)
        with contextlib.suppress(UserError):  # a full disk must not stop the proxy
            _append(self.path, f"rejected {address}: {entry}")
        if kind not in self.kinds:
            self.kinds.add(kind)
            logger.warning("rejected a request from %s: %s", address, entry)


class RejectionLog:
    """refused.jsonl of a run: one line of JSON per rejected update.

    Entries that are made before the run has a folder are kept in memory and written when it has one.
    """

    def __init__(self) -> None:
        self.path: Path | None = None
        self.pending: list[str] = []

    def open(self, path: Path) -> None:
        """Write to a file from now on, starting with the entries made so far."""
        self.path, pending = path, self.pending
        for line in pending:
            self.append(line)
        self.pending = []

    def append(self, line: str) -> None:
        """Add an entry."""
        if self.path is None:
            self.pending.append(line)
        else:
            _append(self.path, line)

    def record(self, rejection: Rejection) -> None:
        """Add a rejection and log it."""
        self.append(rejection.to_json())
        logger.warning("not used: %s", rejection)


def _append(path: Path, line: str) -> None:
    append_line(path, path.stat().st_size if path.exists() else 0, line)
