"""A lock that keeps a second process out of a folder."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from moonfed.core.errors import UserError


@contextlib.contextmanager
def locked_folder(folder: Path, holder: str) -> Iterator[None]:
    """Hold a folder's lock while the block runs; the operating system releases it if this process dies.

    The lock file is opened here and not by moonfed.core.files: it is empty, and the open handle is the lock.
    """
    try:
        file = (folder / "lock").open("w")
    except OSError as error:
        raise UserError(f"cannot write {folder / 'lock'}: {error.strerror}; make {folder} writable") from None
    with file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # not a POSIX system: no lock
            pass
        except BlockingIOError:
            raise UserError(f"{folder} is in use by {holder}; stop that first") from None
        except OSError as error:
            raise UserError(f"{folder} cannot be locked: {error.strerror}; use a folder on another disk") from None
        yield
