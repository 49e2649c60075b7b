"""What readers share: a file that is there and fits into memory, and a word now and then while it is read."""

import os
import time
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path

from moonfed.core.errors import UserError
from moonfed.core.files import short

Say = Callable[[str], None]
PATIENCE = 2.0  # seconds between two words


class Pace:
    """Says how far a reader is, every two seconds."""

    def __init__(self, say: Say, name: str, what: str) -> None:
        self.say, self.name, self.what = say, name, what
        self.last = time.monotonic()

    def at(self, done: int, of: int | None = None) -> None:
        """Note that some rows are done."""
        if time.monotonic() - self.last > PATIENCE:
            self.last = time.monotonic()
            self.say(f"{self.name}: {done:,}{f' of {of:,}' if of else ''} {self.what} read")


def not_there(path: Path) -> UserError:
    """Make the error for data that is not there."""
    near = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    close = get_close_matches(path.name, near, n=1, cutoff=0.6)
    return UserError(f"no file or folder {path}" + (f"; did you mean {path.parent / close[0]}?" if close else ""))


def check_room(path: Path, times: float) -> None:
    """Refuse a file whose content, some times its size, would not fit into the memory that is free."""
    try:
        size = path.stat().st_size
    except OSError as error:
        raise UserError(f"{path} cannot be read: {short(error)}") from None
    if size == 0:
        raise UserError(f"{path} is empty")
    room = free_memory()
    if room is not None and size * times > room:
        raise UserError(
            f"{path} is {size / 1e9:,.1f} GB, which takes about {size * times / 1e9:,.1f} GB of memory to read, and "
            f"{room / 1e9:,.1f} GB are free; take a part of its rows"
        )


def check_bytes(name: str, needed: int) -> None:
    """Refuse inputs that would not fit into the memory that is free."""
    room = free_memory()
    if room is not None and needed > room:
        raise UserError(
            f"{name} takes {needed / 1e9:,.1f} GB of memory as inputs, and {room / 1e9:,.1f} GB are free; "
            "take a part of its rows, or make them smaller"
        )


def free_memory() -> int | None:
    """Bytes of memory that are free, where the system says so."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
