"""Error messages of a site: complete in its own log, redacted when they are sent to the coordinator."""

import re
from collections.abc import Sequence
from pathlib import Path

from moonfed.core.errors import UserError
from moonfed.data.readers.schema import IncompatibleRows
from moonfed.federation.protocol.rejection import Rejection, sanitize

MAX_CHARS = 300
SEE_LOG = "the site's own log says more"
_PATH = re.compile(r"\S*[/\\]\S*")


def full_message(error: Exception) -> str:
    """Describe an error completely, for the site's own log."""
    if isinstance(error, Rejection):
        return f"{error.reason}: {error.detail}" if error.detail else error.reason
    return str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"


def redacted_message(error: Exception, folders: Sequence[Path] = ()) -> str:
    """Describe an error for the coordinator: bounded, without rows, files or folders of the site."""
    if isinstance(error, IncompatibleRows):
        return f"{error.public}; {SEE_LOG}"
    if not isinstance(error, Rejection | UserError):
        return f"{type(error).__name__}; {SEE_LOG}"
    text = full_message(error)
    for folder in folders:
        for name in (str(folder.resolve()), str(folder)):
            text = text.replace(name, "...") if len(name) > 1 else text
    return sanitize(_PATH.sub("...", text))[:MAX_CHARS]
