"""Package registries, through their own clients: npm, apt and pip fetch and verify a package in their own way."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from moonfed.core.files import short, write_bytes
from moonfed.data.catalog.archive import read_tar_stream
from moonfed.data.catalog.monitor import SourceError, Watch

NPM = ("--ignore-scripts", "--loglevel=error", "--no-update-notifier")
NPM_WAITS = ("--fetch-retries=2", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=5000")
PIP = ("--no-deps", "--no-input", "--disable-pip-version-check", "--progress-bar=off", "--retries=2", "--timeout=15")
BEAT = 0.25  # seconds between two looks at a client


def npm_pack(package: str, folder: Path, watch: Watch) -> Path:
    """Fetch a package as npm packs it, a .tgz file, into an empty folder."""
    said = _run(["npm", "pack", package, *NPM, *NPM_WAITS], folder, watch)
    return _only(folder, "*.tgz", said)


def apt_download(package: str, folder: Path, watch: Watch) -> Path:
    """Fetch a Debian package, a .deb file, into an empty folder; nothing is installed."""
    said = _run(["apt-get", "download", package], folder, watch)
    return _only(folder, "*.deb", said)


def pip_download(package: str, sha256: str, folder: Path, watch: Watch) -> Path:
    """Fetch the source archive of a Python package, a .tar.gz file, into an empty folder; nothing is installed.

    To name an archive's requirements pip asks the archive's own build script, so it is told the archive's SHA-256 and
    refuses any other before it looks inside.
    """
    name, wanted = package.partition("==")[0], folder / "wanted.txt"
    write_bytes(wanted, f"{package} --hash=sha256:{sha256}\n".encode())
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-binary",
        name,
        "--require-hashes",
        "-r",
        wanted.name,
        *PIP,
    ]
    said = _run(command, folder, watch, f"pip download {package}")
    return _only(folder, "*.tar.gz", said)


def read_deb(path: Path, wanted: Mapping[str, int]) -> dict[str, bytes]:
    """Read files of a Debian package by name, each of at most so many bytes."""
    with subprocess.Popen(
        [_program("dpkg-deb"), "--fsys-tarfile", str(path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as unpacking:
        assert unpacking.stdout is not None
        try:
            return read_tar_stream(unpacking.stdout, wanted)
        finally:
            unpacking.kill()


def _run(command: Sequence[str], folder: Path, watch: Watch, called: str = "") -> str:
    """Run a client in a folder and return its last words; what it fails with is the source's error."""
    program, what = _program(command[0]), called or " ".join(command[:3])
    log = folder / "client.log"
    process: subprocess.Popen[bytes] | None = None
    try:
        # Ctrl-C while a client is being started would leave it running, known to nobody.
        with log.open("wb") as out, _interrupts_wait() as came:
            process = subprocess.Popen(
                [program, *command[1:]],
                cwd=folder,
                env=os.environ | {"LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        if came:
            raise KeyboardInterrupt
        while process.poll() is None:
            watch.moved(what, 0, 0, "")
            try:
                process.wait(BEAT)
            except subprocess.TimeoutExpired:
                continue
        code = process.returncode
    except OSError as error:
        raise SourceError(f"{command[0]} cannot be started: {short(error)}") from None
    finally:
        if process is not None:
            process.kill()
            process.wait()
    said = _last_words(log.read_text(encoding="utf-8", errors="replace"))
    if code != 0:
        raise SourceError(f"{what} failed: {said or f'exit code {code}'}")
    return said


@contextmanager
def _interrupts_wait() -> Iterator[list[int]]:
    """Note interrupts instead of raising them; outside of the main thread there are none."""
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, before)


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise SourceError(f"{name} is not installed")
    return found


def _only(folder: Path, pattern: str, said: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise SourceError(f"the client left {len(found)} files {pattern} where one was expected: {said}")
    return found[0]


def _last_words(text: str) -> str:
    """Find the line that says what went wrong: npm's first that is more than a code, another's first, or the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for mark in ("npm error ", "npm ERR! ", "E: ", "ERROR: "):
        errors = [line.removeprefix(mark) for line in lines if line.startswith(mark)]
        errors = [line for line in errors if line.split()[0] not in ("code", "syscall", "errno", "path")]
        if errors:
            return errors[0][:200]
    return lines[-1][:200] if lines else ""
