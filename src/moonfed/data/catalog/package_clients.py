"""Fetches packages with the registries' own clients: npm, apt and pip."""

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
from moonfed.data.catalog.monitor import SourceError, TransferMonitor

NPM_FLAGS = ("--ignore-scripts", "--loglevel=error", "--no-update-notifier")
NPM_RETRY_FLAGS = ("--fetch-retries=2", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=5000")
PIP_FLAGS = (
    "--no-deps",
    "--no-input",
    "--disable-pip-version-check",
    "--progress-bar=off",
    "--retries=2",
    "--timeout=15",
)
POLL_SECONDS = 0.25


def npm_pack(package: str, folder: Path, monitor: TransferMonitor) -> Path:
    """Fetch an npm package as a .tgz file into an empty folder."""
    message = _run_client(["npm", "pack", package, *NPM_FLAGS, *NPM_RETRY_FLAGS], folder, monitor)
    return _single_file(folder, "*.tgz", message)


def apt_download(package: str, folder: Path, monitor: TransferMonitor) -> Path:
    """Fetch a Debian package as a .deb file into an empty folder; nothing is installed."""
    message = _run_client(["apt-get", "download", package], folder, monitor)
    return _single_file(folder, "*.deb", message)


def pip_download(package: str, sha256: str, folder: Path, monitor: TransferMonitor) -> Path:
    """Fetch the source archive of a Python package as a .tar.gz file into an empty folder; nothing is installed.

    pip runs an archive's build script to find its requirements. It is therefore given the archive's SHA-256 and refuses
    any other archive before opening it.
    """
    name, requirements = package.partition("==")[0], folder / "requirements.txt"
    write_bytes(requirements, f"{package} --hash=sha256:{sha256}\n".encode())
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-binary",
        name,
        "--require-hashes",
        "-r",
        requirements.name,
        *PIP_FLAGS,
    ]
    message = _run_client(command, folder, monitor, f"pip download {package}")
    return _single_file(folder, "*.tar.gz", message)


def read_deb(path: Path, limits: Mapping[str, int]) -> dict[str, bytes]:
    """Read files of a Debian package; limits maps each name to its largest size in bytes."""
    with subprocess.Popen(
        [_find_program("dpkg-deb"), "--fsys-tarfile", str(path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as unpacking:
        assert unpacking.stdout is not None
        try:
            return read_tar_stream(unpacking.stdout, limits)
        finally:
            unpacking.kill()


def _run_client(command: Sequence[str], folder: Path, monitor: TransferMonitor, title: str = "") -> str:
    """Run a client in a folder and return the line of its output that matters; its failure is a SourceError."""
    program, what = _find_program(command[0]), title or " ".join(command[:3])
    log = folder / "client.log"
    process: subprocess.Popen[bytes] | None = None
    try:
        # Ctrl-C during the start of a client would leave it running without a handle to stop it.
        with log.open("wb") as out, _defer_interrupts() as interrupts:
            process = subprocess.Popen(
                [program, *command[1:]],
                cwd=folder,
                env=os.environ | {"LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        if interrupts:
            raise KeyboardInterrupt
        while process.poll() is None:
            monitor.update(what, 0, 0, "")
            try:
                process.wait(POLL_SECONDS)
            except subprocess.TimeoutExpired:
                continue
        code = process.returncode
    except OSError as error:
        raise SourceError(f"{command[0]} cannot be started: {short(error)}") from None
    finally:
        if process is not None:
            process.kill()
            process.wait()
    message = _message_line(log.read_text(encoding="utf-8", errors="replace"))
    if code != 0:
        raise SourceError(f"{what} failed: {message or f'exit code {code}'}")
    return message


@contextmanager
def _defer_interrupts() -> Iterator[list[int]]:
    """Collect interrupts instead of raising them; only the main thread receives any."""
    interrupts: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: interrupts.append(number))
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, before)


def _find_program(name: str) -> str:
    program = shutil.which(name)
    if program is None:
        raise SourceError(f"{name} is not installed")
    return program


def _single_file(folder: Path, pattern: str, message: str) -> Path:
    files = sorted(folder.glob(pattern))
    if len(files) != 1:
        raise SourceError(f"the client left {len(files)} files {pattern}, one was expected: {message}")
    return files[0]


def _message_line(text: str) -> str:
    """Find the line that names the error: the first error line that is more than npm's code, or the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for mark in ("npm error ", "npm ERR! ", "E: ", "ERROR: "):
        errors = [line.removeprefix(mark) for line in lines if line.startswith(mark)]
        errors = [line for line in errors if line.split()[0] not in ("code", "syscall", "errno", "path")]
        if errors:
            return errors[0][:200]
    return lines[-1][:200] if lines else ""
