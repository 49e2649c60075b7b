"""A lock that keeps a second process out of a folder."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from moonfed.core.errors import UserError
from moonfed.core.files import open_lock


@contextlib.contextmanager
def locked_folder(folder: Path, holder: str) -> Iterator[None]:
    """Hold a folder's lock while the block runs; holder is who else may have it."""
    path = folder / "lock"
    try:
        file = open_lock(path)
    except BlockingIOError:
        raise UserError(f"{folder} is in use by {holder}; stop that first") from None
    except OSError as error:
        advice = f"make {folder} writable, or use a folder on another disk"
        raise UserError(f"cannot write {path}: {error.strerror}; {advice}") from None
    with file:
        yield
