"""One file over HTTP: in pieces that survive an interruption, and never taken without its checksum."""

import hashlib
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
from moonfed.data.catalog.cache import writing
from moonfed.data.catalog.monitor import SourceError, Watch

CHUNK = 1 << 18


@dataclass(frozen=True)
class File:
    """A file at its home."""

    url: str
    md5: str
    size: int  # bytes, as published: for the progress, and twice of it is the most that is taken

    @property
    def name(self) -> str:
        """The file's own name."""
        return urlsplit(self.url).path.rpartition("/")[2]


class Patience(NamedTuple):
    """How long to hope for an answer."""

    tries: int = 5
    timeout: float = 30.0  # seconds without a byte
    pause: float = 1.0  # seconds before the second try, doubled with every other


class _Broken(Exception):
    """Why a try ended, and whether another may do better."""

    def __init__(self, reason: str, again: bool) -> None:
        super().__init__(reason)
        self.again = again


def fetch(file: File, folder: Path, watch: Watch, patience: Patience) -> Path:
    """Fetch a file into a folder, going on from what an earlier try left there."""
    target, part = folder / file.name, folder / f"{file.name}.part"
    with writing(target):
        folder.mkdir(parents=True, exist_ok=True)
        if target.exists():
            if md5_of(target) == file.md5:
                return target
            target.unlink()
        broken = 0
        while True:
            began = part.stat().st_size if part.exists() else 0
            try:
                _pull(file, part, began, watch, patience.timeout)
            except _Broken as error:
                broken += 1
                if not error.again or broken >= patience.tries:
                    raise SourceError(f"{file.name}: {error}") from None
                watch.said(f"{file.name}: {error}; trying again")
                time.sleep(patience.pause * 2 ** (broken - 1))
                continue
            found = md5_of(part)
            if found == file.md5:
                os.replace(part, target)
                return target
            part.unlink()
            if not began:
                raise SourceError(f"{file.name}: something else came: md5 {found}, needed {file.md5}")
            watch.said(f"{file.name}: the pieces do not fit together; starting over")


def md5_of(path: Path) -> str:
    """Hash a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _pull(file: File, part: Path, began: int, watch: Watch, timeout: float) -> None:
    """Append to the partial file what is missing; its checksum is for the caller to judge."""
    reply = _ask(file, began, timeout)
    if reply is None:
        return
    with reply:
        if reply.status == 206 and not reply.headers.get("Content-Range", "").startswith(f"bytes {began}-"):
            part.unlink(missing_ok=True)
            raise _Broken("another piece came than the one asked for", again=True)
        done = began if reply.status == 206 else 0  # 200: a server that knows no pieces starts from the beginning
        length = reply.headers.get("Content-Length", "")
        total = done + int(length) if length.isdecimal() else None
        if (total or 0) > 2 * file.size:
            raise _Broken(f"{total:,} bytes are offered, {file.size:,} were expected", again=False)
        with part.open("ab" if done else "wb") as out:
            while done <= 2 * file.size and (chunk := _chunk(reply)):
                out.write(chunk)
                done += len(chunk)
                watch.moved(file.name, done, total or file.size, "bytes")
    if done > 2 * file.size:
        part.unlink()
        raise _Broken(f"more than {done:,} bytes came, {file.size:,} were expected", again=False)
    if total is not None and done < total:
        raise _Broken(f"the connection broke off after {done:,} of {total:,} bytes", again=True)


def _ask(file: File, began: int, timeout: float) -> HTTPResponse | None:
    """Ask for a file from a byte on; None if there is nothing beyond that byte."""
    headers = {"User-Agent": f"moonfed/{__version__}", "Accept-Encoding": "identity"}
    if began:
        headers["Range"] = f"bytes={began}-"
    try:
        return urllib.request.urlopen(urllib.request.Request(file.url, headers=headers), timeout=timeout)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and began:
            return None
        again = error.code >= 500 or error.code in (408, 429)
        raise _Broken(f"the server answers {error.code} {error.reason}", again) from None
    except (HTTPException, OSError) as error:
        # A host that has never answered is not asked twice: the next source may be nearer.
        raise _Broken(f"no answer ({_reason(error)})", again=began > 0) from None


def _chunk(reply: HTTPResponse) -> bytes:
    try:
        return reply.read1(CHUNK)
    except (HTTPException, OSError) as error:
        raise _Broken(f"the connection broke off ({_reason(error)})", again=True) from None


def _reason(error: Exception) -> str:
    inner = error.reason if isinstance(error, urllib.error.URLError) else error
    return short(inner) if isinstance(inner, Exception) else str(inner)
