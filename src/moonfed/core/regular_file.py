"""The check that a path names a regular file: opening a named pipe or a device may wait for ever."""

import errno
import os
import stat
from pathlib import Path

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def regular_size(path: Path) -> int:
    """Return the size of a regular file in bytes without opening it; anything else is an OSError.

    >>> regular_size(Path("/dev/null"))
    Traceback (most recent call last):
    ...
    OSError: [Errno 22] it is a device, a regular file is needed: '/dev/null'
    """
    try:
        status = os.stat(path)
    except ValueError as error:  # a NUL character, or one that no file name has
        raise OSError(errno.EINVAL, str(error), str(path)) from None
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "a special file")
        raise OSError(errno.EINVAL, f"it is {kind}, a regular file is needed", str(path))
    return status.st_size
