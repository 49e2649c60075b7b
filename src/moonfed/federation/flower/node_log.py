"""What Flower's processes write to their logs, and what it means for the user."""

import re
from collections.abc import Sequence

from moonfed.federation.protocol.rejection import sanitize

MAX_SUMMARY_CHARS = 400
PROXY = "moonfed proxy"  # with which the proxy's own errors begin
KEY_REJECTED = "[code: 2004]"  # Flower's node, when its key is not registered
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_ERROR = re.compile(r"ERROR\b|CRITICAL\b|[\w.]*(Error|Exception): ")
_CLOCK = re.compile(rf"{PROXY}: (the clock of .*)")


def explain_node_exit(lines: Sequence[str], address: str) -> str:
    """Say why a site's Flower node ended, from what it logged."""
    rejected = f"the coordinator at {address} rejects this site"
    if clock := next((match[1] for line in lines if (match := _CLOCK.search(line))), None):
        return f"{rejected}: {sanitize(clock)}"
    if any(KEY_REJECTED in line for line in lines):
        return f"{rejected}: is its key on the allow-list? (moonfed federation admit)"
    return f"the connection to {address} ended: {summarize_log(lines)}"


def summarize_log(lines: Sequence[str]) -> str:
    """Put the last error in a log, or else its last lines, on one line without colours."""
    plain = [text for line in lines if (text := " ".join(_COLOUR.sub("", line).split()))]
    errors = [k for k, line in enumerate(plain) if _ERROR.match(line)]
    summary = " / ".join(plain[errors[-1] :][:3] if errors else plain[-3:])
    summary = "".join(c if c.isprintable() else "?" for c in summary)
    return summary[:MAX_SUMMARY_CHARS] or "no output"
