"""Rejections of messages, in a form that is safe to log.

This module imports no torch: Flower's own processes use it, and their start must not wait for torch.
"""

import json

MAX_LOGGED_CHARS = 120  # of a name that came from outside


class Rejection(Exception):
    """A message that is not accepted: a short reason, a sentence of detail, and the site and round it belongs to."""

    def __init__(self, reason: str, detail: str = "", site: str = "", round: int | None = None) -> None:
        detail, site = (sanitize(text) for text in (detail, site))  # may come from outside, and goes to a terminal
        super().__init__(f"{site or 'a site'}: {reason}" + (f": {detail}" if detail else ""))
        self.reason, self.detail, self.site, self.round = reason, detail, site, round

    def to_json(self) -> str:
        """Write the rejection as one line of JSON for refused.jsonl."""
        entry = {
            "refused": self.site[:MAX_LOGGED_CHARS],
            "round": self.round,
            "reason": self.reason,
            "detail": self.detail,
        }
        return json.dumps(entry, allow_nan=False)


def sanitize(text: str) -> str:
    """Cut a text from outside and replace what a terminal would interpret."""
    return "".join(c if c.isprintable() else "?" for c in text[: 4 * MAX_LOGGED_CHARS])
