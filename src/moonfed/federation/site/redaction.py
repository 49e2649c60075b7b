"""What a site says of its troubles: at home all of it, to others a bounded sentence without names of its files."""

import re
from collections.abc import Sequence
from pathlib import Path

from moonfed.core.errors import UserError
from moonfed.data.readers.schema import Unfit
from moonfed.federation.protocol.rejection import Refused, printable

MOST = 300  # characters
LOG = "the site's own log says more"
_PATH = re.compile(r"\S*[/\\]\S*")


def whole_story(error: Exception) -> str:
    """Say what went wrong, for whoever has the machine."""
    if isinstance(error, Refused):
        return f"{error.reason}: {error.detail}" if error.detail else error.reason
    return str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"


def for_others(error: Exception, places: Sequence[Path] = ()) -> str:
    """Say what went wrong, for everybody: nothing of rows, files and folders."""
    if isinstance(error, Unfit):
        return f"{error.plain}; {LOG}"
    if not isinstance(error, Refused | UserError):
        return f"{type(error).__name__}; {LOG}"
    text = whole_story(error)
    for place in places:
        for name in (str(place.resolve()), str(place)):
            text = text.replace(name, "...") if len(name) > 1 else text
    return printable(_PATH.sub("...", text))[:MOST]
