"""Checks and progress messages that all readers share: a regular file, a bounded width, rows that fit into memory."""

import logging
import os
import time
from difflib import get_close_matches
from pathlib import Path

from moonfed.core.errors import UserError
from moonfed.core.files import short
from moonfed.core.regular_file import regular_size

MAX_COLUMNS = 50_000  # of a table
MAX_ROW_VALUES = 10_000_000  # inputs per row
LOG_INTERVAL = 2.0  # seconds between two progress messages
logger = logging.getLogger(__name__)


class ReadProgress:
    """Logs the progress of a reader every two seconds."""

    def __init__(self, name: str, unit: str) -> None:
        self.name, self.unit = name, unit
        self.logged = time.monotonic()

    def update(self, done: int, total: int | None = None) -> None:
        """Take note of the number of units read so far."""
        if time.monotonic() - self.logged > LOG_INTERVAL:
            self.logged = time.monotonic()
            of_total = f" of {total:,}" if total else ""
            logger.info("%s: read %s%s %s", self.name, f"{done:,}", of_total, self.unit)


def missing_path_error(path: Path) -> UserError:
    """Make the error for a path that does not exist, with the nearest name, or with where it was looked for."""
    if path.is_symlink():
        return UserError(f"{path} is a link that leads nowhere or to itself; needed: an existing path")
    siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    close = get_close_matches(path.name, siblings, n=1, cutoff=0.6)
    looked = f"needed: an existing path, looked in {path.parent.resolve()}"
    return UserError(f"no file or folder {path}; {f'did you mean {path.parent / close[0]}?' if close else looked}")


def check_file(path: Path, memory_factor: float) -> None:
    """Refuse what is no regular file, is empty, or needs (memory_factor times its size) more than the free memory."""
    try:
        size = regular_size(path)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {short(error)}") from None
    if size == 0:
        raise UserError(f"{path} is empty")
    needed, free = size * memory_factor, free_memory()
    if free is not None and needed > free:
        raise UserError(
            f"{path} has {size / 1e9:,.1f} GB and needs about {needed / 1e9:,.1f} GB of memory, "
            f"{free / 1e9:,.1f} GB are free; use fewer rows"
        )


def check_memory(name: str, needed: int) -> None:
    """Refuse inputs that need more bytes than the free memory has."""
    free = free_memory()
    if free is not None and needed > free:
        raise UserError(
            f"{name} needs {needed / 1e9:,.1f} GB of memory as inputs, {free / 1e9:,.1f} GB are free; "
            "use fewer or smaller rows"
        )


def check_columns(name: str, columns: int) -> None:
    """Refuse a table that is too wide to be read column by column."""
    if columns > MAX_COLUMNS:
        raise UserError(
            f"{name} has {columns:,} columns, a table has at most {MAX_COLUMNS:,}; save wide numbers as an .npz file"
        )


def check_width(name: str, values: int) -> None:
    """Refuse rows of more values than a network can take."""
    if values > MAX_ROW_VALUES:
        raise UserError(f"{name} has {values:,} values in each row, at most {MAX_ROW_VALUES:,} are read")


def free_memory() -> int | None:
    """Return the free memory in bytes, None if the system does not tell."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
