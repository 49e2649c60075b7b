"""Downloads one file over HTTP: resumes after an interruption, and accepts the file only by its checksum."""

import hashlib
import logging
import os
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from moonfed import __version__
from moonfed.core.files import short
from moonfed.data.catalog.cache import explain_write_errors
from moonfed.data.catalog.monitor import SourceError, TransferMonitor

CHUNK_BYTES = 1 << 18
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RemoteFile:
    """A file on a web server."""

    url: str
    md5: str
    size: int  # bytes, as published: shown as progress, and a reply of more than twice this size is refused

    @property
    def name(self) -> str:
        """The file's name."""
        return urlsplit(self.url).path.rpartition("/")[2]


class RetryPolicy(NamedTuple):
    """How often and how long a server is asked."""

    tries: int = 5
    timeout: float = 30.0  # seconds without a byte
    pause: float = 1.0  # seconds before the second try, doubled before each further one


class _TransferError(Exception):
    """A try failed; `retry` tells whether another one may succeed."""

    def __init__(self, reason: str, retry: bool) -> None:
        super().__init__(reason)
        self.retry = retry


def download(file: RemoteFile, folder: Path, monitor: TransferMonitor, policy: RetryPolicy) -> Path:
    """Download a file into a folder, resuming from the part that an earlier try left there."""
    target, part = folder / file.name, folder / f"{file.name}.part"
    with explain_write_errors(target):
        folder.mkdir(parents=True, exist_ok=True)
        if target.exists():
            if md5_of(target) == file.md5:
                return target
            target.unlink()
        failures = 0
        while True:
            start = part.stat().st_size if part.exists() else 0
            try:
                _download_rest(file, part, start, monitor, policy.timeout)
            except _TransferError as error:
                failures += 1
                if not error.retry or failures >= policy.tries:
                    raise SourceError(f"{file.name}: {error}") from None
                logger.info("%s: %s; trying again", file.name, error)
                time.sleep(policy.pause * 2 ** (failures - 1))
                continue
            md5 = md5_of(part)
            if md5 == file.md5:
                os.replace(part, target)
                return target
            part.unlink()
            if not start:
                raise SourceError(f"{file.name} is a different file: its md5 is {md5}, expected {file.md5}")
            logger.info("%s: the resumed download has a wrong checksum; starting over", file.name)


def md5_of(path: Path) -> str:
    """Hash a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _download_rest(file: RemoteFile, part: Path, start: int, monitor: TransferMonitor, timeout: float) -> None:
    """Append the missing bytes to the partial file; the caller checks the checksum."""
    reply = _request(file, start, timeout)
    if reply is None:
        return
    with reply:
        if reply.status == 206 and not reply.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            part.unlink(missing_ok=True)
            raise _TransferError("the server sent another range than the requested one", retry=True)
        done = start if reply.status == 206 else 0  # 200: the server ignores ranges and sends the whole file
        length = reply.headers.get("Content-Length", "")
        total = done + int(length) if length.isdecimal() else None
        if (total or 0) > 2 * file.size:
            raise _TransferError(f"the server offers {total:,} bytes, expected {file.size:,}", retry=False)
        with part.open("ab" if done else "wb") as out:
            while done <= 2 * file.size and (chunk := _read_chunk(reply)):
                out.write(chunk)
                done += len(chunk)
                monitor.update(file.name, done, total or file.size, "bytes")
    if done > 2 * file.size:
        part.unlink()
        raise _TransferError(f"the server sent more than {done:,} bytes, expected {file.size:,}", retry=False)
    if total is not None and done < total:
        raise _TransferError(f"the connection was lost after {done:,} of {total:,} bytes", retry=True)


def _request(file: RemoteFile, start: int, timeout: float) -> HTTPResponse | None:
    """Request a file from a byte onwards; None if there is nothing beyond that byte."""
    headers = {"User-Agent": f"moonfed/{__version__}", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        return urllib.request.urlopen(urllib.request.Request(file.url, headers=headers), timeout=timeout)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and start:
            return None
        retry = error.code >= 500 or error.code in (408, 429)
        raise _TransferError(f"the server answers {error.code} {error.reason}", retry) from None
    except (HTTPException, OSError) as error:
        # A host that has never answered is not asked twice: the next source may be reachable.
        raise _TransferError(f"no answer ({_reason(error)})", retry=start > 0) from None


def _read_chunk(reply: HTTPResponse) -> bytes:
    try:
        return reply.read1(CHUNK_BYTES)
    except (HTTPException, OSError) as error:
        raise _TransferError(f"the connection was lost ({_reason(error)})", retry=True) from None


def _reason(error: Exception) -> str:
    inner = error.reason if isinstance(error, urllib.error.URLError) else error
    return short(inner) if isinstance(inner, Exception) else str(inner)
