"""A lock that keeps a second process out of a folder."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from moonfed.core.errors import UserError


@contextlib.contextmanager
def alone(folder: Path, who: str) -> Iterator[None]:
    """Keep other processes out of a folder; the operating system lets go when this one dies, however it dies."""
    try:
        file = (folder / "lock").open("w")
    except OSError as error:
        raise UserError(f"cannot write {folder / 'lock'}: {error.strerror}; {folder} has to be writable") from None
    with file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:
            pass
        except BlockingIOError:
            raise UserError(f"{folder} is in use by {who}; stop that first") from None
        except OSError as error:
            raise UserError(f"{folder} cannot be locked: {error.strerror}; use a folder on another disk") from None
        yield
