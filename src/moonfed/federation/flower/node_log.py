"""What Flower's processes write to their logs, and what it means."""

import re
from collections.abc import Sequence

from moonfed.federation.protocol.rejection import printable

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_TROUBLE = re.compile(r"ERROR\b|CRITICAL\b|[\w.]*(Error|Exception): ")
CLOCK = re.compile(r"moonfed's door: (the clock of .*)")
KEPT_OUT = "[code: 2004]"  # what Flower's node says whose key is not registered


def why_ended(lines: Sequence[str], address: str) -> str:
    """Say why Flower's node ended, by what it said."""
    if clock := next((found[1] for line in lines if (found := CLOCK.search(line))), None):
        return f"the coordinator at {address} does not let this site in: {printable(clock)}"
    if any(KEPT_OUT in line for line in lines):
        return (
            f"the coordinator at {address} does not let this site in: is its key on the allow-list? "
            "(moonfed federation admit)"
        )
    return f"the connection to {address} ended: {last_words(lines)}"


def last_words(lines: Sequence[str]) -> str:
    """Put the last trouble that a process spoke of, or else the last it said, on one line without its colours."""
    said = [plain for line in lines if (plain := " ".join(_COLOUR.sub("", line).split()))]
    bad = [k for k, line in enumerate(said) if _TROUBLE.match(line)]
    text = " / ".join(said[bad[-1] :][:3] if bad else said[-3:])
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text[:400] or "it said nothing"
